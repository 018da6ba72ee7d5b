"""Generated pairs with checkable answers, on which the demo judge is trained and measured.

Each pair is a question of one of the families below with its right answer and a plausible wrong
one. The families differ in difficulty, so that a small judge is sure of some and guesses at others,
as a large judge does on real questions.
"""

import hashlib
import json
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple


class Pair(NamedTuple):
    """A labeled comparison of one family."""

    family: str
    question: str
    response_a: str
    response_b: str
    label: Literal["A", "B"]


class Task(NamedTuple):
    """A question with its right answer and a wrong one."""

    question: str
    right: str
    wrong: str


def _word(rng: random.Random, shortest: int, longest: int) -> str:
    """A pronounceable word that is not in a dictionary, so that no judge has memorised it."""
    length = rng.randint(shortest, longest)
    start = rng.randint(0, 1)
    return "".join(
        rng.choice("aeiou" if (start + i) % 2 else "bcdfghklmnprstvz") for i in range(length)
    )


def _number(rng: random.Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)


def _parity(rng: random.Random) -> Task:
    number = _number(rng, rng.randint(1, 4))
    right, wrong = ("odd", "even") if number % 2 else ("even", "odd")
    return Task(f"Is the number {number} even or odd?", right, wrong)


def _larger(rng: random.Random) -> Task:
    digits = rng.randint(1, 4)
    first, second = _number(rng, digits), _number(rng, digits)
    if first == second:
        second = first + 1
    high, low = max(first, second), min(first, second)
    return Task(f"Which number is larger, {first} or {second}?", str(high), str(low))


def _copy(rng: random.Random) -> Task:
    word = _word(rng, 4, 8)
    return Task(f"Write this word once more: {word}", word, typo(rng, word))


def _last_letter(rng: random.Random) -> Task:
    word = _word(rng, 4, 8)
    end, position = rng.choice((("first", 0), ("last", -1)))
    others = sorted(set(word) - {word[position]})
    return Task(f"What is the {end} letter of the word {word}?", word[position], rng.choice(others))


def _alphabet(rng: random.Random) -> Task:
    start = rng.randrange(2, 24)
    step = rng.choice((-2, -1, 1, 2))
    wrong = rng.choice([s for s in (-2, -1, 1, 2) if s != step])
    steps = "letter" if abs(step) == 1 else "second letter"
    side = "after" if step > 0 else "before"
    letters = string.ascii_lowercase
    return Task(
        f"Which is the {steps} {side} {letters[start]} in the alphabet?",
        letters[start + step],
        letters[start + wrong],
    )


def _sort(rng: random.Random) -> Task:
    numbers = rng.sample(range(10), rng.randint(3, 5))
    right = sorted(numbers)
    wrong = list(right)
    i = rng.randrange(len(wrong) - 1)
    wrong[i], wrong[i + 1] = wrong[i + 1], wrong[i]
    shown = ", ".join(map(str, numbers))
    return Task(
        f"Sort these numbers from small to large: {shown}",
        ", ".join(map(str, right)),
        ", ".join(map(str, wrong)),
    )


def _count(rng: random.Random) -> Task:
    letter = rng.choice("aeiou")
    word = "".join(rng.choice((letter, letter, "t", "n", "s")) for _ in range(rng.randint(3, 8)))
    right = word.count(letter)
    wrong = rng.choice([n for n in (right - 2, right - 1, right + 1, right + 2) if n >= 0])
    return Task(f"How many times is the letter {letter} in {word}?", str(right), str(wrong))


def _reverse(rng: random.Random) -> Task:
    word = _word(rng, 3, 6)
    right = word[::-1]
    return Task(f"Write this word backwards: {word}", right, typo(rng, right))


def _sum(rng: random.Random) -> Task:
    first, second = _number(rng, rng.randint(1, 2)), _number(rng, rng.randint(1, 2))
    right = first + second
    return Task(f"What is {first} + {second}?", str(right), str(_near(rng, right)))


def _difference(rng: random.Random) -> Task:
    first, second = sorted((_number(rng, 2), _number(rng, rng.randint(1, 2))), reverse=True)
    right = first - second
    return Task(f"What is {first} - {second}?", str(right), str(_near(rng, right)))


def _near(rng: random.Random, value: int) -> int:
    steps = [step for step in (-10, -2, -1, 1, 2, 10) if value + step >= 0]
    return value + rng.choice(steps)


def typo(rng: random.Random, word: str) -> str:
    """The word with two different neighboring letters swapped or one letter replaced."""
    swaps = [i for i in range(len(word) - 1) if word[i] != word[i + 1]]
    letters = list(word)
    if swaps and rng.random() < 0.5:
        i = rng.choice(swaps)
        letters[i], letters[i + 1] = letters[i + 1], letters[i]
    else:
        i = rng.randrange(len(letters))
        letters[i] = rng.choice([c for c in string.ascii_lowercase if c != letters[i]])
    return "".join(letters)


FAMILIES: dict[str, Callable[[random.Random], Task]] = {
    "parity": _parity,
    "larger": _larger,
    "copy": _copy,
    "letter": _last_letter,
    "alphabet": _alphabet,
    "sort": _sort,
    "count": _count,
    "reverse": _reverse,
    "sum": _sum,
    "difference": _difference,
}


def is_held_out(task: Task) -> bool:
    """Whether a task is never trained on: a tenth of all tasks, chosen by digest."""
    text = "\x00".join((task.question, *sorted((task.right, task.wrong))))
    return hashlib.sha256(text.encode()).digest()[0] % 10 == 0


def pairs(
    seed: int, *, held_out: bool, families: tuple[str, ...] = tuple(FAMILIES)
) -> Iterator[Pair]:
    """Yields an endless stream of random pairs, with equal shares of the families.

    Args:
        seed: An equal seed yields the same pairs.
        held_out: Whether to draw from the tenth of the tasks that training never sees, or from the
            rest.
        families: Names from FAMILIES.
    """
    rng = random.Random(seed)
    while True:
        family = rng.choice(families)
        task = FAMILIES[family](rng)
        if is_held_out(task) != held_out:
            continue
        if rng.random() < 0.5:
            yield Pair(family, task.question, task.right, task.wrong, "A")
        else:
            yield Pair(family, task.question, task.wrong, task.right, "B")


class DemoSets(NamedTuple):
    """Three disjoint sets of pairs that are never trained on.

    Args:
        calibrate: 600 pairs, shipped to calibrate with.
        trial: 400 pairs, shipped to try.
        fresh: 2,000 pairs to measure on.
    """

    calibrate: list[Pair]
    trial: list[Pair]
    fresh: list[Pair]


def demo_sets() -> DemoSets:
    """Draws the three sets; the same ones on every call.

    The sets are drawn together and shuffled. So they are exchangeable, although small families run
    out of distinct tasks. Labels alternate, so that each set is balanced.
    """
    seed, sizes = 20261120, (600, 400, 2000)
    drawn: dict[tuple[str, ...], Pair] = {}
    stream = pairs(seed, held_out=True)
    while len(drawn) < sum(sizes):
        pair = next(stream)
        drawn.setdefault((pair.question, *sorted((pair.response_a, pair.response_b))), pair)
    chosen = list(drawn.values())
    random.Random(seed).shuffle(chosen)
    chosen = [labelled(pair, "AB"[i % 2]) for i, pair in enumerate(chosen)]
    return DemoSets(
        calibrate=chosen[: sizes[0]],
        trial=chosen[sizes[0] : sizes[0] + sizes[1]],
        fresh=chosen[-sizes[2] :],
    )


def labelled(pair: Pair, label: str) -> Pair:
    """The pair with its responses in the order in which `label` is right."""
    if pair.label == label:
        return pair
    return pair._replace(
        response_a=pair.response_b,
        response_b=pair.response_a,
        label="B" if pair.label == "A" else "A",
    )


def main() -> None:
    """Writes calibrate.jsonl and try.jsonl beside this file."""
    sets, folder = demo_sets(), Path(__file__).parent
    for name, chosen in (("calibrate", sets.calibrate), ("try", sets.trial)):
        lines = [json.dumps(pair._asdict()) + "\n" for pair in chosen]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
