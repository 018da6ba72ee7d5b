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
from tests.drills.load.material import example

# Kind of request -> how often it is sent.
WEIGHTS = {
    "single": 60,
    "batch": 12,
    "no_alpha": 5,
    "infeasible": 2,
    "same": 2,
    "invalid": 1,
    "unknown_set": 1,
    "blank_in_batch": 1,
    "too_many": 0.5,
    "calibrate": 0.5,
    "label": 20,
}
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


def _labeled(fields: Fields) -> Fields:
    return _unlabeled(fields) | {"label": fields["label"]}


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
        body = {"calibration": "default", "examples": list(examples)}
        self._client.post("/calibrate", json=body)

    def send_any(self, *, calibrating: bool = True) -> int:
        """Sends a request of a kind drawn by its weight; returns the status.

        Args:
            calibrating: Whether it may be labeled pairs. They make a new version, about whose
                traffic the service says nothing before 200 judgments.
        """
        kinds = [kind for kind in WEIGHTS if calibrating or kind != "calibrate"]
        weights = [WEIGHTS[kind] for kind in kinds]
        return self.send(self._random.choices(kinds, weights)[0])

    def send(self, kind: str) -> int:
        """Sends one request; returns the status."""
        pair = self._random.choice(self._material.pairs)
        some = self._random.choices(self._material.pairs, k=_BATCH)
        path, body = "/judge", pair
        match kind:
            case "batch":
                path, body = "/judge/batch", {"comparisons": some}
            case "no_alpha":
                body = pair | {"alpha": None}
            case "infeasible":
                # No set here is large enough for one error in a hundred thousand.
                body = pair | {"alpha": 0.00001}
            case "same":
                body = pair | {"response_b": pair["response_a"]}
            case "invalid":
                body = pair | {"alpha": 2}
            case "unknown_set":
                body = pair | {"calibration": "not-there"}
            case "blank_in_batch":
                comparisons = [*some[:3], pair | {"response_a": " "}]
                path, body = "/judge/batch", {"comparisons": comparisons}
            case "too_many":
                path, body = "/judge/batch", {"comparisons": some * 50}
            case "label":
                return self._label(pair)
            case "calibrate":
                self.calibrate(self._random.sample(self._material.examples, 8))
                return 200
            case _:
                assert kind == "single", kind
        return self._client.post(path, json=body).status_code

    def _label(self, pair: Fields) -> int:
        """Judges a pair and, if it is drawn for an audit, labels it as the judge does."""
        answer = self._client.post("/judge", json=pair)
        judgment = answer.json()
        if answer.status_code == 200 and judgment["audit"] and judgment["preferred"]:
            given = {"id": judgment["audit"]["id"], "label": judgment["preferred"]}
            answer = self._client.post("/audits/labels", json={"labels": [given]})
        return answer.status_code
