"""Files of judged pairs: a synthetic one of each shape, and the real ones of ../shared/data.

An ordinary clone has only the synthetic files; tests of the real files skip there. The judge of a
synthetic file has log-odds z for the labeled response, with z ~ N(margin, spread^2). Each vote is
for that response with probability sigmoid(z). A reward model scores it z above the other response.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import expit

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Shape(NamedTuple):
    """A synthetic file of n pairs, with so many votes in each order; 0 for a reward model."""

    n: int
    votes: int
    margin: float
    spread: float
    seed: int


# Continuous scores, and 1 to 8 votes in each order. The most confident level of "two_prompts" has
# 82% of the pairs and an error rate of 0.145.
SYNTHETIC = {
    "reward_model": Shape(900, 0, 2.4, 2.0, seed=1),
    "eight_prompts": Shape(700, 8, 2.2, 2.6, seed=2),
    "two_prompts": Shape(466, 2, 4.6, 5.2, seed=5),
    "five_judges": Shape(700, 5, 1.9, 2.2, seed=4),
    "one_verdict": Shape(700, 1, 4.0, 4.0, seed=5),
}
REAL = (
    "llmbar_case__GPT-4_prompt-ensemble",
    "llmbar_processed_human__GPT-4",
    "rewardbench2__rm_URM-LLaMa-3.1-8B",
    "vicuna80_prd__gpt4",
    "vicuna80_prd__jury5",
)
_FOLDER = TemporaryDirectory()

only_with_real_files = pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data")
each_file = pytest.mark.parametrize(
    "name", [*SYNTHETIC, *(pytest.param(name, marks=only_with_real_files) for name in REAL)]
)


@cache
def file_of(name: str) -> Path:
    """The gzipped JSONL file of a name; synthetic ones are written once."""
    if name in REAL:
        return DATA / f"{name}.jsonl.gz"
    file = Path(_FOLDER.name) / f"{name}.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows_of(SYNTHETIC[name]))
    return file


def rows_of(shape: Shape) -> Iterator[dict[str, Any]]:
    """The rows of a synthetic file, with texts as in the real files: null or a question."""
    rng = np.random.default_rng(shape.seed)
    for i in range(shape.n):
        z, label = rng.normal(shape.margin, shape.spread), rng.choice(["A", "B"])
        row = {
            "id": f"synthetic-{i}",
            "question": f"Question {i // 3}?",
            "response_a": None,
            "response_b": None,
            "label": str(label),
            "group": f"question-{i // 3}",
        }
        if shape.votes == 0:
            score = float(rng.normal(5.0, 2.0))
            scores = (score + z, score) if label == "A" else (score, score + z)
            yield row | dict(zip(("score_a", "score_b"), scores, strict=True))
            continue
        votes = rng.binomial(shape.votes, expit(z), size=2)
        for_a = votes if label == "A" else shape.votes - votes
        row |= {"p_fwd": for_a[0] / shape.votes, "p_rev": for_a[1] / shape.votes}
        yield row
