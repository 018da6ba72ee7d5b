"""The items of a posted batch: those that can be judged, and the errors of all others."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from app.core.errors import RequestError, ScopeJudgeError
from app.wire.calibrations import ExampleErrorOut
from app.wire.problems import problem_of
from app.wire.requests import InvalidItem


class _Identified(Protocol):
    @property
    def id(self) -> str | int | None: ...


Item = TypeVar("Item", bound=_Identified)
Read = TypeVar("Read")


class PostedItems(Generic[Read]):
    """The items of a batch.

    Args:
        items: All items as they were posted, in order.
        convert: Makes an item to judge; raises RequestError if it cannot be judged as written.
    """

    def __init__(
        self, items: Sequence[Item | InvalidItem], convert: Callable[[Item], Read]
    ) -> None:
        self._ids = [item.id for item in items]
        # Index -> item, for those that can be judged.
        self.read: dict[int, Read] = {}
        # (index, error) of all others.
        self.unread: list[tuple[int, ScopeJudgeError]] = []
        for i, item in enumerate(items):
            if isinstance(item, InvalidItem):
                self.unread.append((i, item.error))
                continue
            try:
                self.read[i] = convert(item)
            except RequestError as exc:
                self.unread.append((i, exc))

    def __len__(self) -> int:
        return len(self._ids)

    def errors(self, failed: Iterable[tuple[int, ScopeJudgeError]]) -> list[ExampleErrorOut]:
        """All errors of the batch, in order.

        Args:
            failed: (index, error) of the items that were not judged. The indexes count only the
                items that could be parsed.
        """
        places = list(self.read)
        both = self.unread + [(places[i], error) for i, error in failed]
        return [
            ExampleErrorOut(index=i, id=self._ids[i], error=problem_of(error))
            for i, error in sorted(both, key=itemgetter(0))
        ]
