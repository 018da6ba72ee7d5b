"""Computes "pac" thresholds for any alpha and delta in one thread; each is computed only once."""

import asyncio
import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import LabelsMissingError, OverloadedError
from app.core.pac import rounded_down

# Eight batches with the largest number of different criteria (32); about a second of work.
_MOST_WAITING = 256
_LONGEST_RETRY_S = 30


# A threshold in nats, or the reason why a set has none yet.
Found = float | LabelsMissingError


class _ThresholdKey(NamedTuple):
    """Identifies one threshold of one version of a calibration set."""

    name: str
    write_id: str
    version: int
    alpha: float
    delta: float


class PacThresholds:
    """Computes thresholds one after the other; requests for the same one share the computation.

    Args:
        max_waiting: Most thresholds that may be waiting or in computation at once.
    """

    def __init__(self, *, max_waiting: int = _MOST_WAITING) -> None:
        self._max_waiting = max_waiting
        # A thread of its own: callers can ask for any number of different alphas, and no other
        # work may wait for these.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="thresholds")
        self._waiting: dict[_ThresholdKey, asyncio.Future[Found]] = {}
        self._took_s = 0.0

    def close(self) -> None:
        """Cancels the waiting thresholds; the one in computation ends by itself."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def find(self, asked: Iterable[tuple[Criterion, Calibration]]) -> dict[Criterion, Found]:
        """Finds the thresholds of "pac" criteria.

        A cancelled caller does not cancel the computation, because other callers may wait for it.

        Args:
            asked: Each criterion with its calibration.

        Returns:
            The threshold of each criterion, in nats; -inf if infeasible. An error in its place if
            the set lacks labels for it.

        Raises:
            OverloadedError: Too many thresholds are waiting; none of the new ones was started.
        """
        found: dict[Criterion, Found] = {}
        keys: dict[Criterion, _ThresholdKey] = {}
        missing: dict[_ThresholdKey, Calibration] = {}
        for criterion, calibration in asked:
            assert criterion.alpha is not None, "without an alpha there is no threshold"
            assert criterion.delta is not None, "pac needs a delta"
            kept = calibration.kept_threshold(criterion.alpha, "pac", criterion.delta)
            if kept is not None:
                found[criterion] = kept
                continue
            key = keys[criterion] = _ThresholdKey(
                calibration.name,
                calibration.write_id,
                calibration.version,
                rounded_down(criterion.alpha),
                rounded_down(criterion.delta),
            )
            if key not in self._waiting:
                missing[key] = calibration
        self._check_room(len(missing))
        for key, calibration in missing.items():
            self._begin(key, calibration)
        computations = {criterion: self._waiting[each] for criterion, each in keys.items()}
        for criterion, computation in computations.items():
            found[criterion] = await asyncio.shield(computation)
        return found

    def _check_room(self, more: int) -> None:
        if len(self._waiting) + more > self._max_waiting:
            raise OverloadedError(
                f'{len(self._waiting)} "pac" thresholds are waiting to be computed: try again '
                "later, or use fewer different alphas and deltas",
                retry_after_s=min(
                    _LONGEST_RETRY_S, max(1, math.ceil(len(self._waiting) * self._took_s))
                ),
            )

    def _begin(self, key: _ThresholdKey, calibration: Calibration) -> None:
        loop = asyncio.get_running_loop()
        computation = loop.run_in_executor(self._worker, self._compute, calibration, key)
        self._waiting[key] = computation
        computation.add_done_callback(lambda _: self._waiting.pop(key))

    def _compute(self, calibration: Calibration, key: _ThresholdKey) -> Found:
        begun = time.perf_counter()
        try:
            return calibration.threshold(key.alpha, "pac", key.delta)
        except LabelsMissingError as exc:
            return exc
        finally:
            self._took_s = time.perf_counter() - begun
