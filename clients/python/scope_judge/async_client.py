"""The asynchronous client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

import httpx

from scope_judge.batches import Stream
from scope_judge.calls import Calls
from scope_judge.comparisons import Group, Item, group_item, to_json
from scope_judge.exchange import (
    TIMEOUT_S,
    OneGroup,
    OnWait,
    Pause,
    Steps,
    client_options,
    log_wait,
    request_of,
)
from scope_judge.records import ItemError, Rewards

R = TypeVar("R")
T = TypeVar("T")

# The calls that end a rollout come within it, and it is short beside a judgment.
WINDOW_S = 0.005


class AsyncScopeClient(Calls):
    """A client for asyncio; its arguments and methods are those of `ScopeClient`.

    Those that yield results are asynchronous generators: `async for result in
    client.judge_many(pairs)`. Calls of `rewards`, `group_rewards` and `reference_rewards` that
    begin within 5 ms and have the same rule are sent as one batch.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float | None = None,
        on_wait: OnWait = log_wait,
        confirmed_only: bool = False,
    ) -> None:
        super().__init__(url, api_key, patience_s, confirmed_only=confirmed_only)
        self._http = httpx.AsyncClient(**client_options(self._session.address, timeout_s))
        self._on_wait = on_wait
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        # The rule as JSON -> the batch that still takes groups.
        self._open: dict[bytes, _Gathered] = {}

    async def __aenter__(self) -> "AsyncScopeClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = await self._answer(step)

    async def _answer(self, step: Any) -> Any:
        if isinstance(step, Pause):
            self._on_wait(step)
            await self._sleep(step.seconds)
            return None
        if isinstance(step, OneGroup):
            return await self._gathered(step)
        try:
            return await self._http.request(**request_of(step))
        except httpx.RequestError as exc:
            return exc

    async def _streamed(self, stream: Stream[R]) -> AsyncIterator[R]:
        """Yields the results of the inputs, and works on later ones meanwhile."""
        running: set[asyncio.Task[None]] = set()
        try:
            work = await self._run(stream.preparation)
            batches = stream.batches(work)
            while True:
                while results := work.take():
                    for result in results:
                        yield result
                while work.has_room() and (batch := next(batches, None)):
                    running.add(asyncio.create_task(self._run(work.steps(batch))))
                if not running:
                    return
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    task.result()
        finally:
            for task in running:
                task.cancel()
            # The service ends its work on a request whose client leaves.
            await asyncio.gather(*running, return_exceptions=True)

    async def _gathered(self, asked: OneGroup) -> Rewards:
        """The rewards of one group, in one batch with those of the same few milliseconds.

        Trainers call a reward function once for each sample. In one batch these calls cost one
        request, and one turn in the queue of the service, instead of hundreds. An error of one
        group is raised by its own call only. A call that is cancelled in these milliseconds is not
        sent, and a batch that nobody waits for is cancelled.
        """
        item = group_item(asked.group, 0, asked.rule.get("opponents", "all"))
        key, ticket = to_json(asked.rule), object()
        batch = self._open.setdefault(key, _Gathered())
        batch.groups[ticket] = (asked.group, item)
        if batch.task is None:
            batch.task = asyncio.create_task(self._sent(key, asked))
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

    async def _sent(self, key: bytes, first: OneGroup) -> "_Outcomes":
        """The outcomes of the batch that takes groups until now and a few milliseconds."""
        await asyncio.sleep(WINDOW_S)
        groups = dict(self._open.pop(key).groups)
        if len(groups) == 1:
            ((ticket, (group, _)),) = groups.items()
            return {ticket: await self._run(self._rewards_of(group, first.rule))}
        items = [item for _, item in groups.values()]
        stream = Stream(self._rewarding(first.rule), items, lambda item, number: item)
        outcomes = [each async for each in self._streamed(stream)]
        return dict(zip(groups, outcomes, strict=True))


_Outcomes = dict[object, Rewards | ItemError]


class _Gathered:
    """Groups that are sent together; each is under the ticket of the call that waits for it."""

    def __init__(self) -> None:
        self.groups: dict[object, tuple[Group, Item]] = {}
        self.task: asyncio.Task[_Outcomes] | None = None
