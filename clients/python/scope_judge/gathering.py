"""Gathers rewards that tasks of one event loop ask for at almost the same time into one batch.

Trainers call a reward function once for each sample. In one batch these calls cost one request, and
one turn in the queue of the service, instead of hundreds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from scope_judge.comparisons import Group, Item, group_item, to_json
from scope_judge.records import ItemError, Rewards

# The calls that end a rollout come within it, and it is short beside a judgment.
WINDOW_S = 0.005

One = Callable[[Group, Mapping[str, Any]], Awaitable[Rewards]]
Many = Callable[[Sequence[Item], Mapping[str, Any]], AsyncIterator[Rewards | ItemError]]
_Outcomes = dict[object, Rewards | ItemError]


class _Batch:
    """Groups that are sent together; each is under the ticket of the call that waits for it."""

    def __init__(self) -> None:
        self.groups: dict[object, tuple[Group, Item]] = {}
        self.task: asyncio.Task[_Outcomes] | None = None


class Gathering:
    """Asks for the rewards of groups, in one batch for those of the same few milliseconds.

    An error of one group is raised by its own call only. A call that is cancelled in these
    milliseconds is not sent, and a batch that nobody waits for is cancelled.

    Args:
        one: Asks for the rewards of a group that is alone.
        many: Asks for several groups, and yields their rewards or errors in order.
    """

    def __init__(self, one: One, many: Many) -> None:
        self._one = one
        self._many = many
        # The rule as JSON -> the batch that still takes groups.
        self._open: dict[bytes, _Batch] = {}

    async def rewards(self, group: Group, rule: Mapping[str, Any]) -> Rewards:
        """The rewards of one group.

        Raises:
            ScopeError: There are none.
            TypeError: It is not a group.
        """
        item = group_item(group, 0, rule.get("opponents", "all"))
        key, ticket = to_json(rule), object()
        batch = self._open.setdefault(key, _Batch())
        batch.groups[ticket] = (group, item)
        if batch.task is None:
            batch.task = asyncio.create_task(self._sent(key, rule))
        try:
            # A call that is cancelled leaves the task to the others.
            outcome = (await asyncio.shield(batch.task))[ticket]
        finally:
            del batch.groups[ticket]
            if not batch.groups:
                if self._open.get(key) is batch:
                    del self._open[key]
                batch.task.cancel()
        if isinstance(outcome, ItemError):
            raise outcome.error.exception()
        return outcome

    async def _sent(self, key: bytes, rule: Mapping[str, Any]) -> _Outcomes:
        """The outcomes of the batch that takes groups until now and a few milliseconds."""
        await asyncio.sleep(WINDOW_S)
        groups = dict(self._open.pop(key).groups)
        if len(groups) == 1:
            ((ticket, (group, _)),) = groups.items()
            return {ticket: await self._one(group, rule)}
        outcomes = self._many([item for _, item in groups.values()], rule)
        return dict(zip(groups, [each async for each in outcomes], strict=True))
