"""Battles of twelve models whose true ratings are known, for the demo judge.

python -m app.demo.arena battles.jsonl                  # 2,000 battles, 10% of them labeled
scope-judge battles battles.jsonl --out rows.jsonl      # judged by a running service

The true ratings are written beside the battles, into battles-true-ratings.csv.

A battle has a task of `pairs.py`. One of the two models answers it right, and the other one wrong.
Model i is the right one with probability sigmoid(strength_i - strength_j), so the battles follow
the Bradley-Terry model exactly, and its true ratings are the strengths.

One model writes its answers as a list item ("- 42"). The demo judge likes that, right or wrong; the
people, who know the answer, do not care. So the judge puts the model too high.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from app.demo.pairs import labelled, pairs

COUNT, LABELED, SEED = 2000, 0.1, 17
MODELS = tuple(f"model-{letter}" for letter in "abcdefghijkl")
# In logits, of the models in order; the mean is 0.
STRENGTHS = tuple(1.65 - 0.3 * place for place in range(len(MODELS)))
FAVORED = "model-h"
_OF_NUMBERS = ("parity", "larger", "count", "sum", "difference")


class DemoBattle(NamedTuple):
    """A battle; the fields are the columns that `scope-judge battles` reads.

    Args:
        id: Seed and number of the battle; two weeks have different ones.
        winner: The model that is right.
        category: Kind of the question.
    """

    id: str
    question: str
    model_a: str
    model_b: str
    response_a: str
    response_b: str
    winner: Literal["model_a", "model_b"]
    category: Literal["numbers", "words"]


def battles(seed: int, *, favored: bool = True) -> Iterator[DemoBattle]:
    """Yields battles of random models; no question repeats, so the stream slows down in the end.

    Args:
        seed: An equal seed yields the same battles.
        favored: Whether FAVORED writes its answers as list items.
    """
    rng = random.Random(f"arena {seed}")
    tasks = pairs(rng.getrandbits(32), held_out=True)
    asked = set[str]()
    while True:
        first, second = rng.sample(range(len(MODELS)), 2)
        chance = 1.0 / (1.0 + math.exp(STRENGTHS[second] - STRENGTHS[first]))
        pair = labelled(next(tasks), "A" if rng.random() < chance else "B")
        # A pair counts once in a set, so the promise is about traffic without repetitions.
        if pair.question in asked:
            continue
        asked.add(pair.question)
        yield DemoBattle(
            f"{seed}-{len(asked)}",
            pair.question,
            MODELS[first],
            MODELS[second],
            _written(MODELS[first], pair.response_a, favored=favored),
            _written(MODELS[second], pair.response_b, favored=favored),
            winner="model_a" if pair.label == "A" else "model_b",
            category="numbers" if pair.family in _OF_NUMBERS else "words",
        )


def as_item(text: str) -> str:
    """The answer as the favored model writes it."""
    return f"- {text}"


def _written(model: str, text: str, *, favored: bool) -> str:
    return as_item(text) if favored and model == FAVORED else text


def rows(seed: int, count: int, label_share: float) -> Iterator[dict[str, object]]:
    """Yields battles as `scope-judge battles` reads them; people labeled a random sample.

    Args:
        seed: An equal seed yields the same rows.
        count: Number of battles.
        label_share: Probability with which a battle was drawn for labeling; 0 for no labels.
    """
    drawn = random.Random(f"labels {seed}")
    stream = battles(seed)
    for _ in range(count):
        row = next(stream)._asdict()
        winner = row.pop("winner")
        is_drawn = drawn.random() < label_share
        if label_share:
            row |= {"human": winner if is_drawn else None, "human_probability": label_share}
        yield row


def true_ratings() -> dict[str, float]:
    """The true ratings on the Elo scale, where the mean model has 1000."""
    return {
        model: 1000.0 + 400.0 / math.log(10.0) * strength
        for model, strength in zip(MODELS, STRENGTHS, strict=True)
    }


def main() -> None:
    """Writes battles to a file, and the true ratings beside it."""
    parser = argparse.ArgumentParser(description="Write battles of twelve models, as JSONL.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--labelled", type=float, default=LABELED, help="share in [0, 1]")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    with asked.file.open("w", encoding="utf-8") as file:
        for row in rows(asked.seed, asked.count, asked.labelled):
            file.write(f"{json.dumps(row)}\n")
    ratings = asked.file.with_name(f"{asked.file.stem}-true-ratings.csv")
    lines = ("model,rating", *(f"{model},{rating:.1f}" for model, rating in true_ratings().items()))
    ratings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{asked.count} battles of {len(MODELS)} models in {asked.file}")
    print(f"their true ratings in {ratings}")


if __name__ == "__main__":
    main()
