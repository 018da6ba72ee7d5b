"""Pairs of real sentences whose better response is known, in 15 families and 7 unseen ones.

Each pair is an instruction about a sentence with a response that follows it and one that does not.
The tuned judge is trained on the families of SEEN with the sentences of some pages. It is measured
on the sentences of other pages, in the same families and in those of UNSEEN. Both splits were made
before the first training.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from app.demo.pairs import Pair, labelled, typo
from tests.tuned_judge.sentences import is_held_out, load

GAP = "___"


class Texts:
    """The sentences that pairs are made of.

    Args:
        held_out: Whether to use the pages that are held out from training, or the others.
    """

    def __init__(self, *, held_out: bool) -> None:
        self.pages = {page: own for page, own in load().items() if is_held_out(page) == held_out}
        self._page_of = {text: page for page, own in self.pages.items() for text in own}
        self._all = list(self._page_of)
        self._with_neighbours = [text for text in self._all if len(self.beside(text)) > 1]

    def beside(self, sentence: str) -> Sequence[str]:
        """All sentences of the sentence's page."""
        return self.pages[self._page_of[sentence]]

    def one(self, rng: random.Random) -> str:
        """A sentence."""
        return rng.choice(self._all)

    def one_with_neighbours(self, rng: random.Random) -> str:
        """A sentence whose page has another one."""
        return rng.choice(self._with_neighbours)

    def elsewhere(self, rng: random.Random, sentence: str) -> str:
        """A sentence of another page."""
        while True:
            found = self.one(rng)
            if self._page_of[found] != self._page_of[sentence]:
                return found


class Drawn(NamedTuple):
    """One question's content, with a response that follows it and one that does not."""

    sentence: str
    right: str
    wrong: str
    word: str = ""


class Family(NamedTuple):
    """Wordings of one instruction, with {sentence} and {word}, and its random contents."""

    wordings: tuple[str, ...]
    draw: Callable[[random.Random, Texts], Drawn | None]


Change = Callable[[random.Random, list[str], Texts], list[str]]


def words_of(sentence: str) -> list[str]:
    """The words of a sentence without its full stop; other punctuation stays at its word."""
    return sentence.removesuffix(".").split()


def plain_words(sentence: str) -> set[str]:
    """The words of a sentence in small letters without punctuation."""
    return {word.strip(".,;:").casefold() for word in sentence.split()}


def _joined(words: Sequence[str]) -> str:
    return " ".join(words) + "."


def _replaced(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    """Replaces two words by words of another sentence."""
    known = plain_words(" ".join(words))
    others = sorted(plain_words(texts.one(rng)) - known) or ["nothing"]
    changed = list(words)
    for i in rng.sample(range(1, len(words)), 2):
        changed[i] = rng.choice(others)
    return changed


def _swapped(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    """Exchanges two words; the first word stays."""
    i, j = rng.sample(range(1, len(words)), 2)
    changed = list(words)
    changed[i], changed[j] = changed[j], changed[i]
    return changed


def _cut(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    return words[: rng.randint(2, len(words) - 2)]


def _extended(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    return words + words_of(texts.one(rng))[-rng.randint(2, 5) :]


def _dropped(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    """Leaves out one or two words within the sentence."""
    left_out = rng.sample(range(1, len(words) - 1), rng.randint(1, 2))
    return [word for i, word in enumerate(words) if i not in left_out]


def _doubled(rng: random.Random, words: list[str], texts: Texts) -> list[str]:
    """Repeats two neighbouring words."""
    i = rng.randrange(len(words) - 1)
    return words[: i + 2] + words[i:]


def _shuffled(rng: random.Random, words: list[str]) -> list[str]:
    return rng.sample(words, len(words))


def _copy(change: Change, rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    return Drawn(sentence, sentence, _joined(change(rng, words_of(sentence), texts)))


def _order(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    words = words_of(sentence)
    return Drawn(" ".join(_shuffled(rng, words)), sentence, _joined(_shuffled(rng, words)))


def _fluent(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    words = words_of(sentence)
    return Drawn("", sentence, _joined(_shuffled(rng, words)), word=str(len(words)))


def _misspelled(rng: random.Random, words: Sequence[str]) -> str:
    changed = list(words)
    long = [i for i, word in enumerate(words) if len(word) >= 4 and word.isalpha()]
    for i in rng.sample(long, min(3, len(long))):
        changed[i] = words[i][0] + typo(rng, words[i][1:])
    return _joined(changed)


def _spelling(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    shown, wrong = (_misspelled(rng, words_of(sentence)) for _ in range(2))
    return Drawn(shown, sentence, wrong)


def _mixed(rng: random.Random, words: Sequence[str]) -> str:
    """The sentence with the letters of its longer words in random order."""
    return _joined(
        ["".join(rng.sample(word, len(word))) if len(word) >= 4 else word for word in words]
    )


def _unscrambled(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    shown, wrong = (_mixed(rng, words_of(sentence)) for _ in range(2))
    return Drawn(shown, sentence, wrong)


def _upper(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    return Drawn(sentence, sentence.upper(), rng.choice((sentence, sentence.lower())))


def _lower(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    return Drawn(sentence, sentence.lower(), sentence.upper())


def _title(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    return Drawn(sentence, titled(sentence), rng.choice((sentence, sentence.lower())))


def titled(sentence: str) -> str:
    """The sentence with a capital letter at the beginning of every word."""
    return " ".join(word[0].upper() + word[1:] for word in sentence.split())


def _with_words(count: int, rng: random.Random, texts: Texts) -> Drawn | None:
    """Asks for a sentence with some words; the other response has none of them."""
    sentence = texts.one(rng)
    candidates = sorted(word for word in plain_words(sentence) if len(word) >= 4)
    if len(candidates) < count:
        return None
    asked = rng.sample(candidates, count)
    wrong = texts.elsewhere(rng, sentence)
    if plain_words(wrong) & set(asked):
        return None
    return Drawn("", sentence, wrong, word=", ".join(asked))


def _finish(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    words, others = words_of(sentence), words_of(texts.elsewhere(rng, sentence))
    half = len(words) // 2
    right, wrong = _joined(words[half:]), _joined(others[len(others) // 2 :])
    return Drawn(" ".join(words[:half]), right, wrong)


def _gap(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    words, others = words_of(sentence), words_of(texts.elsewhere(rng, sentence))
    i, j = (rng.randrange(1, len(each) - 2) for each in (words, others))
    shown = _joined([*words[:i], GAP, *words[i + 2 :]])
    return Drawn(shown, " ".join(words[i : i + 2]), " ".join(others[j : j + 2]))


def _first_word(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    first, *others = (word.strip(",;:") for word in words_of(sentence))
    others = [word for word in others if word.casefold() != first.casefold()]
    return Drawn(sentence, first, rng.choice(others))


def _last_words(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one(rng)
    words = words_of(sentence)
    i = rng.randrange(len(words) - 4)
    return Drawn(sentence, " ".join(words[-3:]), " ".join(words[i : i + 3]).strip(",;:"))


def _next_word(rng: random.Random, texts: Texts) -> Drawn | None:
    sentence = texts.one(rng)
    words = [word.strip(",;:") for word in words_of(sentence)]
    small = [word.casefold() for word in words]
    i = rng.randrange(len(words) - 1)
    if small.count(small[i]) > 1:
        return None
    others = [word for word in words if word.casefold() not in small[i : i + 2]]
    return Drawn(sentence, words[i + 1], rng.choice(others), word=words[i])


def _yes_or_no(rng: random.Random, texts: Texts) -> Drawn | None:
    sentence = texts.one(rng)
    is_in = rng.random() < 0.5
    source = sentence if is_in else texts.elsewhere(rng, sentence)
    word = rng.choice(sorted(plain_words(source)))
    if len(word) < 4 or (word in plain_words(sentence)) != is_in:
        return None
    right, wrong = ("Yes.", "No.") if is_in else ("No.", "Yes.")
    return Drawn(sentence, right, wrong, word=word)


def _subject(rng: random.Random, texts: Texts) -> Drawn:
    sentence = texts.one_with_neighbours(rng)
    right = rng.choice([text for text in texts.beside(sentence) if text != sentence])
    return Drawn(sentence, right, texts.elsewhere(rng, sentence))


_COPY = (
    "Copy this sentence: {sentence}",
    "Repeat this sentence word for word: {sentence}",
    "{sentence}\n\nWrite the sentence above once more.",
)
SEEN: dict[str, Family] = {
    "copy_replaced": Family(_COPY, partial(_copy, _replaced)),
    "copy_swapped": Family(_COPY, partial(_copy, _swapped)),
    "copy_cut": Family(_COPY, partial(_copy, _cut)),
    "copy_extended": Family(_COPY, partial(_copy, _extended)),
    "order": Family(
        (
            "Put these words in order: {sentence}",
            "Make a sentence of these words: {sentence}",
            "{sentence}\n\nBring the words above into the right order.",
        ),
        _order,
    ),
    "fluent": Family(
        ("Write a clear sentence of {word} words.", "Say something with {word} words."), _fluent
    ),
    "spelling": Family(
        (
            "Correct the spelling: {sentence}",
            "Write this without spelling errors: {sentence}",
            "{sentence}\n\nCorrect the typing errors above.",
        ),
        _spelling,
    ),
    "upper": Family(
        ("Write this in capital letters: {sentence}", "Use upper case only: {sentence}"), _upper
    ),
    "lower": Family(
        ("Write this in small letters: {sentence}", "Use lower case only: {sentence}"), _lower
    ),
    "contains": Family(
        ('Write a sentence with the word "{word}".', "Use this word in a sentence: {word}"),
        partial(_with_words, 1),
    ),
    "finish": Family(
        ("Finish this sentence: {sentence} ...", "How does this sentence end? {sentence} ..."),
        _finish,
    ),
    "first_word": Family(
        (
            "What is the first word of this sentence? {sentence}",
            "{sentence}\n\nWith which word does this begin?",
        ),
        _first_word,
    ),
    "next_word": Family(
        (
            'Which word follows the word "{word}"? {sentence}',
            '{sentence}\n\nWhich word comes directly after "{word}" above?',
        ),
        _next_word,
    ),
    "yes_or_no": Family(
        (
            'Is the word "{word}" in this sentence? {sentence}',
            '{sentence}\n\nDoes the sentence above have the word "{word}"?',
        ),
        _yes_or_no,
    ),
    "subject": Family(
        (
            "Write a sentence on the same subject as this one: {sentence}",
            "Say more about this: {sentence}",
        ),
        _subject,
    ),
}
# Instructions, and ways in which a response is wrong, that occur in no training pair.
UNSEEN: dict[str, Family] = {
    "dropped": Family(
        ("Type these words again without any change: {sentence}",), partial(_copy, _dropped)
    ),
    "doubled": Family(
        ("Say exactly the following and nothing else: {sentence}",), partial(_copy, _doubled)
    ),
    "title": Family(("Begin every word of this line with a capital letter: {sentence}",), _title),
    "keywords": Family(
        ("Formulate a statement about these keywords: {word}",), partial(_with_words, 3)
    ),
    "gap": Family((f"Which two words belong into the gap ({GAP})? {{sentence}}",), _gap),
    "unscrambled": Family(
        ("The letters are mixed up. What does this text say? {sentence}",), _unscrambled
    ),
    "last_words": Family(("Quote the last three words of this text: {sentence}",), _last_words),
}
FAMILIES = SEEN | UNSEEN


def pairs(seed: int, *, held_out: bool, families: Sequence[str]) -> Iterator[Pair]:
    """Yields an endless stream of pairs; the families take turns, and so do the labels of each.

    Args:
        seed: An equal seed yields the same pairs.
        held_out: Whether the sentences are from the held-out pages, or from the others.
        families: Names from FAMILIES.
    """
    rng, texts = random.Random(seed), Texts(held_out=held_out)
    while True:
        for label in "AB":
            for name in families:
                yield labelled(_pair(name, rng, texts), label)


def _pair(name: str, rng: random.Random, texts: Texts) -> Pair:
    """A pair of one family with its better response first."""
    family = FAMILIES[name]
    while True:
        drawn = family.draw(rng, texts)
        # A random change may leave the sentence as it was.
        if drawn is None or drawn.right == drawn.wrong:
            continue
        question = rng.choice(family.wordings).format(sentence=drawn.sentence, word=drawn.word)
        return Pair(name, question, drawn.right, drawn.wrong, "A")
