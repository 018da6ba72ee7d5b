"""The figures by name: how each is measured, and which of them share their processes."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks import client_speed, http_speed
from tests.benchmarks.engine_speed import Arena, Field
from tests.benchmarks.measurement import Failed, Figure, Result, Sampling, Skipped
from tests.benchmarks.prefix_order import prefix_order
from tests.benchmarks.real_judge import UnavailableJudgeError, real_judge
from tests.benchmarks.start_speed import NAMES as _START
from tests.benchmarks.start_speed import StartBench
from tests.benchmarks.texts import demo_pairs, names_of_texts, pairs_by_question, real_slices

_CONTESTANTS = ("engine", "chat-client", "transformers-loop")
_FIELDS = ("demo", "smollm2")
_HTTP = ("http-scripted", "single-scripted", "draws-sqlite", "draws-redis", "memory")
_CLIENT = ("client-batch", "client-stream")
NAMES = (
    *(f"{contestant}-{field}" for contestant in _CONTESTANTS for field in _FIELDS),
    "prefix-order",
    *_HTTP,
    *_CLIENT,
    *_START,
)
# Samples of the figures that take minutes.
_FEW = 3


def samples_of(name: str, repeats: int) -> int:
    """The approximate number of samples of a figure, for a progress bar."""
    return {
        "memory": 1,
        **dict.fromkeys(_START, min(repeats, _FEW)),
        "http-scripted": repeats,
        "single-scripted": repeats,
        "prefix-order": 3 * min(repeats, _FEW),
    }.get(name, 2 * repeats)


class Suite:
    """Measures figures; figures of one model share their processes.

    Args:
        sampling: Folder, number and size of the samples.
        against: Folder of another release, with which the start is compared.
        on_stage: Receives a description of each stage when it begins.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        against: Path | None = None,
        on_stage: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._sampling = sampling
        # For the figures that take minutes.
        self._few = dataclasses.replace(sampling, repeats=min(sampling.repeats, _FEW))
        self._quick = sampling.small
        self._against = against
        self._on_stage = on_stage

    def measure(self, names: Sequence[str]) -> Iterator[Result]:
        """Yields each figure when it is measured; one that fails does not stop the others."""
        for field in _FIELDS:
            wanted = [name for name in _CONTESTANTS if f"{name}-{field}" in names]
            if wanted:
                figures = [f"{name}-{field}" for name in wanted]
                yield from _guarded(figures, partial(self._arena, field, wanted))
        wanted = [name for name in _START if name in names]
        if wanted:
            self._on_stage(", ".join(wanted))
            starts = StartBench(self._few, self._against)
            yield from _guarded(wanted, partial(starts.measure, wanted))
        for name, measured in self._single_figures().items():
            if name in names:
                self._on_stage(name)
                yield from _guarded([name], partial(_listed, measured))

    def _single_figures(self) -> dict[str, Callable[[], Result]]:
        measured: dict[str, Callable[[Sampling], Figure]] = {
            "http-scripted": http_speed.batches,
            "single-scripted": http_speed.singles,
            "draws-sqlite": http_speed.draws_on_sqlite,
            "draws-redis": http_speed.draws_on_redis,
            "memory": http_speed.memory,
            "client-batch": client_speed.batches,
            "client-stream": client_speed.stream,
        }
        return {
            "prefix-order": self._prefix_order,
            **{name: partial(figure, self._sampling) for name, figure in measured.items()},
        }

    def _arena(self, field: str, contestants: Sequence[str]) -> list[Result]:
        self._on_stage(f"{field}: starting {', '.join(contestants)}")
        try:
            judge = self._demo() if field == "demo" else self._real()
        except UnavailableJudgeError as exc:
            return [Skipped(f"{name}-{field}", str(exc)) for name in contestants]
        arena = Arena(self._sampling, judge, contestants)
        try:
            self._on_stage(f"{field}: {', '.join(contestants)}")
            return [*arena.measure()]
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
            calibration=(),
            # Both contestants work in batches of a fixed size: more pairs do not make them faster.
            shares={"chat-client": count // 2, "transformers-loop": count // 4},
            texts="pairs of the demo judge's families",
            targets={"engine": 0.95, "chat-client": 1.5, "transformers-loop": 1.3},
        )

    def _real(self) -> Field:
        self._on_stage("making the checkpoint of SmolLM2")
        model = str(real_judge())
        *slices, calibration = real_slices(2 if self._quick else 32)
        return Field(
            name="smollm2",
            model=model,
            model_setting=model,
            pairs=lambda repeat: slices[repeat % len(slices)],
            batch=500,
            at_once=2,
            calibration=calibration,
            shares={},
            texts=names_of_texts(),
            targets={"engine": 0.95, "chat-client": 1.0, "transformers-loop": 1.3},
        )

    def _prefix_order(self) -> Result:
        try:
            model = str(real_judge())
        except UnavailableJudgeError as exc:
            return Skipped("prefix-order", str(exc))
        groups, asked = pairs_by_question(), 1 if self._quick else 2
        if self._quick:
            groups = [group[:2] for group in groups]
        return prefix_order(
            self._few,
            model,
            lambda repeat: [groups[(repeat * asked + i) % len(groups)] for i in range(asked)],
        )


def _listed(measured: Callable[[], Result]) -> list[Result]:
    return [measured()]


def _guarded(names: Sequence[str], measured: Callable[[], list[Result]]) -> list[Result]:
    """The figures; if measuring raises an error, a failure for each of them."""
    try:
        return measured()
    except Exception as exc:  # noqa: BLE001 - the other figures are still measured
        reason = f"{type(exc).__name__}: {exc}"
        return [Failed(name, reason) for name in names]
