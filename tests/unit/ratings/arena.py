"""Simulated arenas: models with known strengths, and a judge that may favor one of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from app.ratings.battles import Battles
from app.ratings.board import rated
from app.ratings.results import Board, RatingSettings

Floats = NDArray[np.float64]
SIGNATURE = "judge=sim fingerprint=0 calibration=default v1"


@dataclass(frozen=True)
class Arena:
    """Battles with the truth and a judgment of each.

    Args:
        strength: Shape (models,). True ratings in logits, mean 0.
        first, second: Shape (n,). Models of each battle.
        truth: Shape (n,). 1 if people prefer the first.
        p_bar: Shape (n,). The judge's probability of the first.
        threshold: Accepted are the battles with max(p_bar, 1 - p_bar) of at least it.
    """

    strength: Floats
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    truth: Floats
    p_bar: Floats
    threshold: float

    @property
    def accepted(self) -> NDArray[np.bool_]:
        return np.maximum(self.p_bar, 1.0 - self.p_bar) >= self.threshold

    def rows(
        self, *, labelled: float = 0.0, seed: int = 0, per_question: int = 1, **more: Any
    ) -> list[dict[str, Any]]:
        """Rows of battles; a random share has a person's label."""
        drawn = np.random.default_rng(seed).random(len(self.truth)) < labelled
        names = [f"model-{place:02d}" for place in range(len(self.strength))]
        return [
            {
                "id": f"battle-{i}",
                "question_id": f"question-{i // per_question}",
                "model_a": names[self.first[i]],
                "model_b": names[self.second[i]],
                "winner": "abstain"
                if not self.accepted[i]
                else ("model_a" if self.p_bar[i] > 0.5 else "model_b"),
                "reason": None if self.accepted[i] else "uncertain",
                "p_bar": float(self.p_bar[i]),
                "alpha": 0.1,
                "judge": "sim",
                "signature": SIGNATURE,
                "human": ("model_a" if self.truth[i] else "model_b") if drawn[i] else None,
                "human_probability": labelled if labelled else None,
                **more,
            }
            for i in range(len(self.truth))
        ]


def simulated(
    *,
    models: int = 6,
    battles: int = 6000,
    favor: float = 0.0,
    favored: int = 2,
    signal: float = 1.95,
    coverage: float = 0.52,
    seed: int = 0,
) -> Arena:
    """An arena of models from -1 to 1 with a judge whose probabilities are right, but for a favor.

    Args:
        favor: Logits that the judge adds for the model `favored`.
        signal: Standard deviation of the log-odds that the texts of a battle show to the judge.
        coverage: Share of accepted verdicts.
    """
    rng = np.random.default_rng(seed)
    strength = np.linspace(-1.0, 1.0, models)
    first = rng.integers(models, size=battles)
    second = (first + rng.integers(1, models, size=battles)) % models
    gap = strength[first] - strength[second]
    truth = (rng.random(battles) < expit(gap)).astype(float)
    shown = (2.0 * truth - 1.0) * signal**2 / 2.0 + rng.normal(0.0, signal, battles)
    kin = (first == favored).astype(float) - (second == favored).astype(float)
    p_bar = expit(gap + shown + favor * kin)
    threshold = float(np.quantile(np.maximum(p_bar, 1.0 - p_bar), 1.0 - coverage))
    return Arena(strength, first, second, truth, p_bar, threshold)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def board_of(battles: Battles, settings: RatingSettings) -> Board:
    return rated(battles, settings)[0]
