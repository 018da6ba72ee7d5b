"""Cuts items into batches by the speed that is seen, and puts the answers back in order."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from scope_judge.comparisons import Item
from scope_judge.errors import ScopeError, TooLargeError
from scope_judge.exchange import Steps

R = TypeVar("R")
Asked = Callable[[Sequence[Item]], Steps[list[R]]]

# Long enough that the time of a request does not count, far below any timeout of a service, and
# short enough that little work is lost with a connection.
TARGET_S = 3.0
FIRST_SIZE = 8
# A batch is at most so many times larger than one whose time was measured.
_GROWTH = 4
# Part of the limit of a body that the items may take; the rest is for the criterion.
_SHARE_OF_BODY = 0.9


class BatchSize:
    """The number of comparisons for the next batch.

    It follows the measured speed, so that a batch takes about TARGET_S.
    """

    def __init__(self, most: int, first: int = FIRST_SIZE) -> None:
        self._most = max(1, most)
        self.comparisons = min(first, self._most)
        self.is_measured = False

    def answered(self, comparisons: int, seconds: float) -> None:
        """Notes how long a batch took."""
        self.is_measured = True
        fitting = max(1, int(comparisons * TARGET_S / max(seconds, 1e-3)))
        if seconds > TARGET_S:
            self.comparisons = min(self.comparisons, fitting)
        else:
            # The last batch may be small: its speed does not justify smaller ones.
            larger = min(fitting, _GROWTH * comparisons, self._most)
            self.comparisons = max(self.comparisons, larger)

    def refused(self, comparisons: int) -> None:
        """Notes that a batch was too large or too slow."""
        self.comparisons = max(1, min(self.comparisons, comparisons // 2))


class Cutter:
    """Collects items into batches."""

    def __init__(self, size: BatchSize, max_body_bytes: int) -> None:
        self._size = size
        self._most_bytes = int(_SHARE_OF_BODY * max_body_bytes)
        self._items: list[Item] = []
        self._comparisons = self._bytes = 0

    def add(self, item: Item) -> list[Item] | None:
        """Adds an item; returns the items before it if they are a full batch."""
        full = None
        if self._items and (
            self._comparisons + item.cost > self._size.comparisons
            or self._bytes + len(item.content) > self._most_bytes
        ):
            full = self.rest()
        self._items.append(item)
        self._comparisons += item.cost
        self._bytes += len(item.content) + 1
        return full

    def rest(self) -> list[Item]:
        """The items that are not in a batch yet."""
        items, self._items = self._items, []
        self._comparisons = self._bytes = 0
        return items


def in_parts(
    items: Sequence[Item],
    ask: Callable[[Sequence[Item]], Steps[list[R]]],
    failed: Callable[[Item, ScopeError], R],
    size: BatchSize,
    clock: Callable[[], float],
) -> Steps[list[R]]:
    """Sends items in one request, or in halves where that is too large or too slow."""
    begun = clock()
    try:
        results = yield from ask(items)
    except ScopeError as exc:
        if not _is_too_much(exc):
            raise
        error = exc
    else:
        size.answered(sum(item.cost for item in items), clock() - begun)
        return results
    size.refused(sum(item.cost for item in items))
    if len(items) == 1:
        return [failed(items[0], error)]
    half = len(items) // 2
    results = yield from in_parts(items[:half], ask, failed, size, clock)
    results += yield from in_parts(items[half:], ask, failed, size, clock)
    return results


def _is_too_much(error: ScopeError) -> bool:
    # 504: the judge is too slow for the service's own timeout. After the client's timeout nobody
    # knows whether the service is slow or frozen.
    return isinstance(error, TooLargeError) or error.status == 504


class Work(Generic[R]):
    """Items that are sent in batches, several at a time, and their results in order."""

    def __init__(
        self,
        ask: Asked[R],
        failed: Callable[[Item, ScopeError], R],
        *,
        size: BatchSize,
        max_body_bytes: int,
        in_flight: int,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._failed = failed
        self._clock = clock
        self._size = size
        self._in_flight = in_flight
        self.cutter = Cutter(size, max_body_bytes)
        # A place for each batch that was not taken: its results or error, or None before both.
        self._places: deque[list[Sequence[R] | ScopeError | None]] = deque()

    def has_room(self) -> bool:
        """Whether another batch may begin.

        One at a time until the speed is known. Twice the batches in flight may wait for earlier
        ones, so that a caller who takes no results stops the work. None begins after a failure, or
        while there are results to take: the caller may keep them, and be ended at any time.
        """
        if self._places and self._places[0][0] is not None:
            return False
        unanswered = sum(1 for (results,) in self._places if results is None)
        if any(isinstance(results, ScopeError) for (results,) in self._places):
            return False
        if not self._size.is_measured:
            return unanswered == 0
        return unanswered < self._in_flight and len(self._places) < 2 * self._in_flight

    def steps(self, batch: Sequence[Item]) -> Steps[None]:
        """Sends a batch, and puts its results into their place."""
        place: list[Sequence[R] | ScopeError | None] = [None]
        self._places.append(place)

        def steps() -> Steps[None]:
            try:
                place[0] = yield from in_parts(
                    batch, self._ask, self._failed, self._size, self._clock
                )
            except ScopeError as exc:
                # Raised when it is the turn of this batch.
                place[0] = exc

        return steps()

    @property
    def is_empty(self) -> bool:
        """Whether all batches that began were taken."""
        return not self._places

    def take(self) -> Sequence[R]:
        """The results of the first batch, empty if it has none yet; raises its error."""
        results = self._places[0][0] if self._places else None
        if results is None:
            return ()
        self._places.popleft()
        if isinstance(results, ScopeError):
            raise results
        return results


@dataclass(frozen=True, slots=True)
class Stream(Generic[R]):
    """Many inputs, and how they become results."""

    preparation: Steps[Work[R]]
    inputs: Any
    item: Callable[[Any, int], Item]

    def batches(self, work: Work[R]) -> Iterator[list[Item]]:
        """Yields batches, and reads no more inputs than they need."""
        for number, given in enumerate(self.inputs):
            if full := work.cutter.add(self.item(given, number)):
                yield full
        if rest := work.cutter.rest():
            yield rest
