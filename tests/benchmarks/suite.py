"""The figures by name: how each is measured, and which of them share their processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks.audit_draws import audit_draws
from tests.benchmarks.client_speed import ClientBench
from tests.benchmarks.engine_speed import Arena, Field
from tests.benchmarks.http_speed import HttpBench
from tests.benchmarks.measurement import Figure, Skipped
from tests.benchmarks.prefix_order import prefix_order
from tests.benchmarks.random_judge import random_judge
from tests.benchmarks.releases import Releases
from tests.benchmarks.texts import demo_pairs, has_real_texts, pairs_by_question, real_slices

_CONTESTANTS = ("engine", "chat-client", "transformers-loop")
_FIELDS = ("demo", "100m")
_HTTP = ("http-scripted", "single-scripted", "memory")
_CLIENT = ("client-batch", "client-stream")
_RELEASES = ("cpu-single", "cpu-batch")
_AUDITS = "audit-draws"
NAMES = (
    *(f"{contestant}-{field}" for contestant in _CONTESTANTS for field in _FIELDS),
    "prefix-order",
    *_HTTP,
    *_CLIENT,
    _AUDITS,
    *_RELEASES,
)


def samples_of(name: str, repeats: int) -> int:
    """The approximate number of samples of a figure, for a progress bar."""
    return {
        "memory": 1,
        "http-scripted": repeats,
        "prefix-order": 3 * repeats,
        "cpu-single": repeats,
        "cpu-batch": repeats,
        _AUDITS: repeats,
    }.get(name, 2 * repeats)


class Suite:
    """Measures figures; figures of one model share their processes.

    Args:
        folder: Folder for the logs of the processes.
        repeats: Number of samples of each contestant.
        quick: Whether a sample is small: a smoke test, not a measurement.
        against: Folder of another release, which the figures of two releases need.
        on_stage: Receives a description of each stage when it begins.
        on_sample: Called after each sample.
    """

    def __init__(
        self,
        folder: Path,
        *,
        repeats: int,
        quick: bool,
        against: Path | None = None,
        on_stage: Callable[[str], None] = lambda text: None,
        on_sample: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._repeats = repeats
        self._quick = quick
        self._against = against
        self._on_stage = on_stage
        self._on_sample = on_sample

    def measure(self, names: Sequence[str]) -> list[Figure | Skipped]:
        """The figures in the order of NAMES."""
        found: list[Figure | Skipped] = []
        for field in _FIELDS:
            wanted = [name for name in _CONTESTANTS if f"{name}-{field}" in names]
            if wanted:
                found += self._arena(field, wanted)
        if "prefix-order" in names:
            found.append(self._prefix_order())
        found += self._http([name for name in _HTTP if name in names])
        found += self._client([name for name in _CLIENT if name in names])
        if _AUDITS in names:
            found.append(self._audits())
        found += self._releases([name for name in _RELEASES if name in names])
        return sorted(found, key=lambda figure: NAMES.index(figure.name))

    def _arena(self, field: str, contestants: Sequence[str]) -> list[Figure | Skipped]:
        if field != "demo" and not has_real_texts():
            return [_without_texts(f"{name}-{field}") for name in contestants]
        self._on_stage(f"{field}: starting {', '.join(contestants)}")
        arena = Arena(
            self._folder, self._demo() if field == "demo" else self._random(), contestants
        )
        try:
            self._on_stage(f"{field}: {', '.join(contestants)}")
            return [*arena.measure(self._repeats, self._on_sample)]
        finally:
            arena.close()

    def _demo(self) -> Field:
        count = 100 if self._quick else 1000
        return Field(
            name="demo",
            model=str(DEMO_FOLDER / "model"),
            model_setting="demo",
            pairs=lambda repeat: demo_pairs(repeat, count),
            batch=500,
            at_once=2,
            calibrated=True,
            # Both contestants work in batches of a fixed size: more pairs do not make them faster.
            shares={"chat-client": count // 2, "transformers-loop": count // 4},
            targets={"engine": 0.85, "chat-client": 1.5, "transformers-loop": 1.3},
        )

    def _random(self) -> Field:
        self._on_stage("building the judge with 100M parameters")
        model = str(random_judge("bfloat16"))
        slices = list(real_slices(12 if self._quick else 32))
        return Field(
            name="100m",
            model=model,
            model_setting=model,
            pairs=lambda repeat: slices[repeat % len(slices)],
            batch=500,
            at_once=2,
            calibrated=False,
            shares={},
            targets={"engine": 0.95, "chat-client": 1.0, "transformers-loop": 1.3},
        )

    def _prefix_order(self) -> Figure | Skipped:
        if not has_real_texts():
            return _without_texts("prefix-order")
        self._on_stage("prefix-order")
        groups, asked = pairs_by_question(), 1 if self._quick else 3
        return prefix_order(
            self._folder,
            str(random_judge("bfloat16")),
            lambda repeat: [groups[(repeat * asked + i) % len(groups)] for i in range(asked)],
            self._repeats,
            self._on_sample,
        )

    def _http(self, names: Sequence[str]) -> list[Figure]:
        if not names:
            return []
        bench = HttpBench(
            self._folder, repeats=self._repeats, small=self._quick, on_sample=self._on_sample
        )
        figures = {
            "http-scripted": bench.batches,
            "single-scripted": bench.singles,
            "memory": bench.memory,
        }
        try:
            found = []
            for name in names:
                self._on_stage(name)
                found.append(figures[name]())
            return found
        finally:
            bench.close()

    def _client(self, names: Sequence[str]) -> list[Figure]:
        bench = ClientBench(
            self._folder, repeats=self._repeats, small=self._quick, on_sample=self._on_sample
        )
        figures = {"client-batch": bench.batches, "client-stream": bench.stream}
        found = []
        for name in names:
            self._on_stage(name)
            found.append(figures[name]())
        return found

    def _audits(self) -> Figure:
        self._on_stage(_AUDITS)
        return audit_draws(
            self._folder, repeats=self._repeats, small=self._quick, on_sample=self._on_sample
        )

    def _releases(self, names: Sequence[str]) -> list[Figure | Skipped]:
        if self._against is None:
            reason = 'needs another release\'s folder: ARGS="--against FOLDER"'
            return [Skipped(name, reason) for name in names]
        bench = Releases(
            self._folder,
            self._against,
            repeats=self._repeats,
            small=self._quick,
            on_sample=self._on_sample,
        )
        figures = {"cpu-single": bench.singles, "cpu-batch": bench.batches}
        found: list[Figure | Skipped] = []
        for name in names:
            self._on_stage(name)
            found.append(figures[name]())
        return found


def _without_texts(name: str) -> Skipped:
    return Skipped(name, "its texts in ../shared/data are not part of this repository")
