"""Sends requests of every kind, so that every panel has data."""

import random
from typing import Any, Self

import httpx

from tests.traffic import example

_BATCH = 24

Fields = dict[str, Any]


class MixedTraffic:
    """A client whose pairs are like those of its set; otherwise there would be a drift alert.

    Most pairs state their quality. Without it each order gets its own gap, so that many flip.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self._random = random.Random(1)
        labeled = [example("traffic", number) for number in range(300)]
        self._labels = {each["question"]: each.pop("label") for each in labeled}
        self._pairs = labeled + [
            {"question": f"Question {i}?", "response_a": f"One {i}.", "response_b": f"Other {i}."}
            for i in range(100)
        ]
        self._random.shuffle(self._pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    def calibrate(self, count: int) -> None:
        """Posts labeled pairs; those without a quality have the judge's own label."""
        some = self._random.sample(self._pairs, count)
        judged = self._post("/judge/batch", {"comparisons": some, "alpha": None}).json()["results"]
        examples = [
            pair | {"label": self._labels.get(pair["question"], judgment["preferred"])}
            for pair, judgment in zip(some, judged, strict=True)
        ]
        self._post("/calibrate", {"examples": examples}).raise_for_status()

    def send_every_kind(self) -> None:
        """Sends a request of each kind, good and bad."""
        pair, some = self._pairs[0], self._random.choices(self._pairs, k=_BATCH)
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
        self.calibrate(8)
        self.judge_and_label()

    def judge_and_label(self) -> None:
        """Judges a batch, and labels a drawn pair as the judge does."""
        some = self._random.choices(self._pairs, k=_BATCH)
        results = self._post("/judge/batch", {"comparisons": some}).json()["results"]
        for judgment in results:
            if judgment.get("audit") and judgment["preferred"]:
                given = {"id": judgment["audit"]["id"], "label": judgment["preferred"]}
                self._post("/audits/labels", {"labels": [given]})
                return

    def _post(self, path: str, body: Fields) -> httpx.Response:
        return self._client.post(path, json=body)
