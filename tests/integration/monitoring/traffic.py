"""Sends requests of every kind, so that every panel has data."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import httpx
import numpy as np

from app.core.comparison import Comparison
from app.core.preference import preference_from_gaps
from app.judges.engines.scripted import by_quality
from app.judges.prompts import PromptTemplate
from tests.traffic import example

_BATCH = 24

Fields = dict[str, Any]


class Material(NamedTuple):
    """Pairs to judge and pairs to calibrate with.

    Args:
        examples: Labeled pairs.
        pairs: Pairs for judging.
    """

    examples: list[Fields]
    pairs: list[Fields]


def scripted_material() -> Material:
    """Pairs for the scripted judge: most state their quality, the others show an order bias.

    The judged pairs are like the labeled ones; otherwise there would be an alert about drift.
    """
    with_quality = [example("traffic", number) for number in range(300)]
    # Without a stated quality each order gets its own gap, so that many pairs flip.
    without_quality = [
        {"question": f"Question {i}?", "response_a": f"One {i}.", "response_b": f"Other {i}."}
        for i in range(100)
    ]
    examples = [
        fields
        for i, pair in enumerate(without_quality)
        for fields in (*with_quality[3 * i : 3 * i + 3], pair | {"label": _preferred(pair)})
    ]
    return Material(examples, [_unlabeled(pair) for pair in (*with_quality, *without_quality)])


def _preferred(fields: Fields) -> str:
    """The side that the scripted judge prefers."""
    forward, reverse = (
        by_quality(prompt) for prompt in PromptTemplate().both_orders(Comparison.of(**fields))
    )
    found = preference_from_gaps(
        np.array([forward.a - forward.b]), np.array([reverse.b - reverse.a])
    )
    return "A" if found.p_bar[0] > 0.5 else "B"


def _unlabeled(fields: Fields) -> Fields:
    return {name: fields[name] for name in ("question", "response_a", "response_b")}


class MixedTraffic:
    """A client that sends requests of every kind; an equal seed gives the same requests."""

    def __init__(self, url: str, material: Material, *, seed: int) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self._material = material
        self._random = random.Random(seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def calibrate(self, examples: Sequence[Fields]) -> None:
        """Posts labeled pairs."""
        self._post("/calibrate", {"calibration": "default", "examples": list(examples)})

    def send_every_kind(self) -> None:
        """Sends a request of each kind, good and bad."""
        pair = self._random.choice(self._material.pairs)
        some = self._random.choices(self._material.pairs, k=_BATCH)
        for changes in (
            {},
            {"alpha": None},
            # No set here is large enough for one error in a hundred thousand.
            {"alpha": 0.00001},
            {"response_b": pair["response_a"]},
            {"alpha": 2},
            {"calibration": "not-there"},
        ):
            self._post("/judge", pair | changes)
        for comparisons in ([*some[:3], pair | {"response_a": " "}], some * 50):
            self._post("/judge/batch", {"comparisons": comparisons})
        self.calibrate(self._random.sample(self._material.examples, 8))
        self.judge_and_label()

    def judge_and_label(self) -> None:
        """Judges a batch, and labels a drawn pair as the judge does."""
        some = self._random.choices(self._material.pairs, k=_BATCH)
        results = self._post("/judge/batch", {"comparisons": some}).json()["results"]
        for judgment in results:
            if judgment.get("audit") and judgment["preferred"]:
                given = {"id": judgment["audit"]["id"], "label": judgment["preferred"]}
                self._post("/audits/labels", {"labels": [given]})
                return

    def _post(self, path: str, body: Fields) -> httpx.Response:
        return self._client.post(path, json=body)
