"""Traffic that is unlike the labelled pairs: does the service notice?"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.patience import PATIENCE_S

_EXAMPLES = 300
_ORDINARY = 1000
_MOST_HARD = 3000
_BATCH = 50
_SET = "mixture"
# Ten families; the judge is as sure of the last two as of most others, and wrong more often.
_FAMILIES = 10
_EASY = 8
_EASY_WIDTH = 6.0
_HARD_WIDTH = 1.6
_HARD_ERROR = 0.32


@dataclass(slots=True)
class _Counts:
    """Counts of judgments and of their errors."""

    judged: int = 0
    abstained: int = 0
    wrong: int = 0

    def add(self, results: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
        for result, label in zip(results, labels, strict=True):
            self.judged += 1
            self.abstained += result["verdict"] == "abstain"
            self.wrong += result["verdict"] not in ("abstain", label)

    def __str__(self) -> str:
        accepted = max(1, self.judged - self.abstained)
        return (
            f"{self.abstained / max(1, self.judged):.0%} abstained, "
            f"{self.wrong / accepted:.0%} of the accepted wrong"
        )


def _labelled(rng: random.Random, number: int, *, family: int) -> dict[str, str]:
    easy = family < _EASY
    gap = rng.gauss(0.0, _EASY_WIDTH if easy else _HARD_WIDTH)
    error = 1 / (1 + math.exp(abs(gap))) if easy else _HARD_ERROR
    right = rng.random() >= error
    return {**pair(number, gap=gap), "label": "A" if (gap > 0) == right else "B"}


def _judge(client: httpx.Client, pairs: Sequence[dict[str, str]], counts: _Counts) -> None:
    comparisons = [{k: each[k] for k in each if k != "label"} for each in pairs]
    body = {"comparisons": comparisons, "calibration": _SET}
    answer = client.post("/judge/batch", json=body).raise_for_status()
    counts.add(answer.json()["results"], [each["label"] for each in pairs])


def judge_only_the_hard_part(scene: Scene) -> str:
    """Calibrates on a mixture, judges that mixture, then judges two of its ten families only."""
    rng = random.Random(15)
    ordinary, hard = _Counts(), _Counts()
    with scene.client(scene.admin_key) as client:
        examples = [_labelled(rng, i, family=i % _FAMILIES) for i in range(_EXAMPLES)]
        body = {"calibration": _SET, "examples": examples}
        client.post("/calibrate", json=body).raise_for_status()
        while ordinary.judged < _ORDINARY:
            # Drift counts a question once, so each pair has a question of its own.
            first = _EXAMPLES + ordinary.judged
            numbers = range(first, first + _BATCH)
            pairs = [_labelled(rng, i, family=rng.randrange(_FAMILIES)) for i in numbers]
            _judge(client, pairs, ordinary)
        assert not _tripped(client), f"drift was reported without any: {ordinary}"
        while hard.judged < _MOST_HARD and not _tripped(client):
            first = _EXAMPLES + ordinary.judged + hard.judged
            numbers = range(first, first + _BATCH)
            pairs = [_labelled(rng, i, family=_EASY + i % 2) for i in numbers]
            _judge(client, pairs, hard)
        assert _tripped(client), f"nothing tripped in {hard.judged} judgments: {hard}"
    logged = _logged(scene)
    return (
        f"tripped after {hard.judged} judgments ({hard}; before {ordinary}); "
        f"lines of the log: {logged}"
    )


def _logged(scene: Scene) -> int:
    """Lines of the log about the drift; the service writes its log in a thread of its own."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = scene.log.read_text(encoding="utf-8").count(f"{_SET!r} (version 1) is unlike")
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _tripped(client: httpx.Client) -> bool:
    traffic = client.get(f"/calibrations/{_SET}").raise_for_status().json().get("traffic")
    return bool(traffic and traffic["drifted"])


ATTACKS = (
    Attack(
        "drift",
        "a set of ten families of pairs, then traffic from the two hardest only",
        judge_only_the_hard_part,
        cheap=True,
    ),
)
