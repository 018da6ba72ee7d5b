"""Thresholds of "pac" for the alphas and deltas that callers choose, computed in one thread."""

import asyncio
import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import OverloadedError
from app.core.pac import rounded_down

# Eight batches with as many different criteria as one may have; a second of work.
_MOST_WAITING = 256
_LONGEST_RETRY_S = 30


class _Question(NamedTuple):
    """One threshold of one version of a calibration set."""

    name: str
    write_id: str
    version: int
    alpha: float
    delta: float


class Thresholds:
    """Computes thresholds one after the other, each once, however many requests wait for it.

    Args:
        max_waiting: Most thresholds that may be under way or waiting at once.
    """

    def __init__(self, *, max_waiting: int = _MOST_WAITING) -> None:
        self._max_waiting = max_waiting
        # A thread of its own: callers can ask for as many thresholds as there are alphas, and
        # nothing else must wait for them.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="thresholds")
        self._waiting: dict[_Question, asyncio.Future[float]] = {}
        self._took_s = 0.0

    def close(self) -> None:
        """Drops what is waiting; the one that is being computed ends by itself."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def find(self, asked: Iterable[tuple[Criterion, Calibration]]) -> dict[Criterion, float]:
        """The thresholds of some criteria, all of them "pac", each with its calibration.

        A caller that is cancelled leaves the computation to the others, and to those who come.

        Raises:
            OverloadedError: Too many are waiting; none of these was begun.
        """
        found: dict[Criterion, float] = {}
        questions: dict[Criterion, _Question] = {}
        missing: dict[_Question, Calibration] = {}
        for criterion, calibration in asked:
            assert criterion.alpha is not None, "without an alpha there is no threshold"
            assert criterion.delta is not None, "pac needs a delta"
            kept = calibration.kept_threshold(criterion.alpha, "pac", criterion.delta)
            if kept is not None:
                found[criterion] = kept
                continue
            question = questions[criterion] = _Question(
                calibration.name,
                calibration.write_id,
                calibration.version,
                rounded_down(criterion.alpha),
                rounded_down(criterion.delta),
            )
            if question not in self._waiting:
                missing[question] = calibration
        self._check_room(len(missing))
        for question, calibration in missing.items():
            self._begin(question, calibration)
        answers = {criterion: self._waiting[each] for criterion, each in questions.items()}
        for criterion, answer in answers.items():
            found[criterion] = await asyncio.shield(answer)
        return found

    def _check_room(self, more: int) -> None:
        if len(self._waiting) + more > self._max_waiting:
            raise OverloadedError(
                f"{len(self._waiting)} thresholds of alphas and deltas that nobody has asked for "
                'yet are waiting to be computed under "pac": try again later, or use fewer '
                "different ones",
                retry_after_s=min(
                    _LONGEST_RETRY_S, max(1, math.ceil(len(self._waiting) * self._took_s))
                ),
            )

    def _begin(self, question: _Question, calibration: Calibration) -> None:
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._worker, self._compute, calibration, question)
        self._waiting[question] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(question))

    def _compute(self, calibration: Calibration, question: _Question) -> float:
        begun = time.perf_counter()
        threshold = calibration.threshold(question.alpha, "pac", question.delta)
        self._took_s = time.perf_counter() - begun
        return threshold
