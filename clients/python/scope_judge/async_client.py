"""The asynchronous client."""

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from scope_judge.address import Address
from scope_judge.batches import Batch, Work
from scope_judge.comparisons import (
    Absorption,
    Completion,
    Criterion,
    Example,
    Group,
    GroupRule,
    Item,
    Pair,
    Question,
    ReferenceRule,
    Response,
    checked,
    group_item,
    pair_item,
    two_responses,
)
from scope_judge.exchange import Session, Steps, Timing
from scope_judge.gathering import Gathering
from scope_judge.progress import Bar
from scope_judge.records import (
    AbsorbReport,
    Audit,
    AuditEvent,
    AuditLabels,
    Calibration,
    CalibrationDetail,
    CalibrationReport,
    Check,
    Deletion,
    EndedAlarm,
    Identifier,
    Info,
    ItemError,
    Judgment,
    Label,
    Monitor,
    NextLabels,
    PoolReport,
    Rewards,
    RollbackReport,
    SingleJudgment,
    Status,
    Version,
)
from scope_judge.service import Service
from scope_judge.transport import IN_FLIGHT, TIMEOUT_S, AsyncTransport, OnWait, log_wait

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

R = TypeVar("R")
T = TypeVar("T")


class AsyncScopeClient:
    """A client of a scope-judge service for asyncio; its methods are those of `ScopeClient`.

    Calls of `rewards`, `group_rewards` and `reference_rewards` that begin within 5 ms and have the
    same rule are sent as one batch.

    Args:
        url: As in `ScopeClient`, like every argument.
        api_key: The key, if the service needs one.
        timeout_s: Longest time without an answer to one try.
        patience_s: How long a request is repeated.
        on_wait: Receives each pause before a repetition.
        confirmed_only: Whether answers with thresholds that are not confirmed are asked for again.
        sleep: Waits some seconds, for tests.
        timing: Clocks and chance, for tests.

    Raises:
        ValueError: The address or the key cannot be one.
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
        sleep: Callable[[float], Awaitable[None]] | None = None,
        timing: Timing | None = None,
    ) -> None:
        address = Address.of(url, api_key)
        self.url = address.url
        session = Session(address, timing or Timing(), patience_s, confirmed_only=confirmed_only)
        self._service = Service(session)
        self._transport = AsyncTransport(
            address, timeout_s, on_wait, sleep, session.timing.monotonic
        )
        self._gathering = Gathering(self._rewards_of_one, self._rewards_of_items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> "AsyncScopeClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._transport.http.aclose()

    async def get(self, path: str) -> Any:
        """Sends GET to a path and returns the JSON of the answer, as `ScopeClient.get`."""
        return await self._transport.run(self._service.get(path))

    async def post(self, path: str, body: Any, *, idempotent: bool) -> Any:
        """Sends JSON to a path and returns the JSON of the answer, as `ScopeClient.post`."""
        return await self._transport.run(self._service.post(path, body, idempotent=idempotent))

    async def delete(self, path: str) -> Any:
        """Sends DELETE to a path, once, as `ScopeClient.delete`."""
        return await self._transport.run(self._service.delete(path))

    async def judge_batch(
        self, comparisons: Sequence[Mapping[str, Any]], **criterion: "Unpack[Criterion]"
    ) -> list[dict[str, Any]]:
        """Judges comparisons in one request, as `ScopeClient.judge_batch`."""
        return await self._transport.run(self._service.judge_batch(comparisons, criterion))

    async def info(self) -> Info:
        """The judge, the defaults and the limits of the service; raises ScopeError."""
        return await self._transport.run(self._service.info())

    async def check(self, **rule: "Unpack[GroupRule]") -> Check:
        """Checks the address, the key, and the rule of rewards, as `ScopeClient.check`."""
        return await self._transport.run(self._service.check(rule))

    async def judge(
        self,
        question: Question,
        a: Response | None = None,
        b: Response | None = None,
        *,
        response_a: Response | None = None,
        response_b: Response | None = None,
        id: Identifier | None = None,
        **criterion: "Unpack[Criterion]",
    ) -> SingleJudgment:
        """Judges which of two responses is better, as `ScopeClient.judge`."""
        pair = two_responses(a, b, response_a, response_b)
        return await self._transport.run(self._service.judge(question, *pair, id, criterion))

    def judge_many(
        self,
        pairs: Iterable[Pair] | AsyncIterable[Pair],
        *,
        in_flight: int = IN_FLIGHT,
        progress: bool | None = None,
        **criterion: "Unpack[Criterion]",
    ) -> AsyncIterator[Judgment | ItemError]:
        """Judges any number of pairs, and yields one result for each, in order.

        It is an asynchronous generator: `[result async for result in client.judge_many(pairs)]`.
        Everything else is as in `ScopeClient.judge_many`; the pairs may be asynchronous, too.
        """
        preparation = self._service.judging(criterion, in_flight)
        return self._many(preparation, pairs, pair_item, progress)

    async def _many(
        self,
        preparation: Steps[Work[R]],
        inputs: Iterable[T] | AsyncIterable[T],
        item: Callable[[T, int], Item],
        progress: bool | None,
    ) -> AsyncIterator[R]:
        """Yields the results of the inputs, and works on later ones meanwhile."""
        running: set[asyncio.Task[None]] = set()
        bar = Bar(progress, inputs)
        try:
            work = await self._transport.run(preparation)
            batches = _cut(work, _items(inputs, item))
            while True:
                while work.has_room() and (batch := await anext(batches, None)):
                    running.add(asyncio.create_task(self._transport.run(work.steps(batch.items))))
                if results := work.results.take():
                    bar.advance(len(results))
                    for result in results:
                        yield result
                elif not running:
                    return
                else:
                    finished, running = await asyncio.wait(
                        running, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in finished:
                        task.result()
        finally:
            bar.close()
            for task in running:
                task.cancel()
            # The service ends its work on a request whose client leaves.
            await asyncio.gather(*running, return_exceptions=True)

    async def rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        **rule: "Unpack[GroupRule]",
    ) -> list[float | None]:
        """The rewards of the responses to one question, in order, as `ScopeClient.rewards`."""
        return list((await self.group_rewards(question, responses, **rule)).rewards)

    async def group_rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        **rule: "Unpack[GroupRule]",
    ) -> Rewards:
        """Compares the responses to one question with each other, as `ScopeClient` does."""
        return await self._gathering.rewards((question, responses), checked(rule, GroupRule))

    def rewards_many(
        self,
        groups: Iterable[Group] | AsyncIterable[Group],
        *,
        in_flight: int = IN_FLIGHT,
        progress: bool | None = None,
        **rule: "Unpack[GroupRule]",
    ) -> AsyncIterator[Rewards | ItemError]:
        """Rewards any number of groups, and yields one result for each, in order.

        It is an asynchronous generator. Everything else is as in `ScopeClient.rewards_many`.
        """
        preparation = self._service.rewarding(rule, in_flight)
        item = partial(group_item, opponents=rule.get("opponents", "all"))
        return self._many(preparation, groups, item, progress)

    async def reference_rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        reference: Completion,
        **rule: "Unpack[ReferenceRule]",
    ) -> Rewards:
        """Compares each of the responses with a reference, as `ScopeClient` does."""
        group = (question, responses, reference)
        return await self._gathering.rewards(group, checked(rule, ReferenceRule))

    async def _rewards_of_one(self, group: Group, rule: Mapping[str, Any]) -> Rewards:
        return await self._transport.run(self._service.rewards_of(group, rule))

    def _rewards_of_items(
        self, items: Sequence[Item], rule: Mapping[str, Any]
    ) -> AsyncIterator[Rewards | ItemError]:
        preparation = self._service.rewarding(rule, IN_FLIGHT)
        return self._many(preparation, items, lambda item, number: item, progress=False)

    async def calibrate(
        self,
        name: str,
        examples: Iterable[Example],
    ) -> CalibrationReport:
        """Adds labeled pairs to a calibration set, as `ScopeClient.calibrate`."""
        return await self._transport.run(self._service.calibrate(examples, {"calibration": name}))

    async def pool(
        self,
        name: str,
        pairs: Iterable[Pair],
    ) -> PoolReport:
        """Adds pairs without labels to a calibration set, as `ScopeClient.pool`."""
        return await self._transport.run(self._service.pool(name, pairs))

    async def next_to_label(
        self,
        name: str = "default",
        *,
        alpha: float | None = None,
        delta: float | None = None,
        limit: int = 100,
    ) -> NextLabels:
        """The pairs of a pool to label next, as `ScopeClient.next_to_label`."""
        return await self._transport.run(self._service.next_to_label(name, alpha, delta, limit))

    async def calibration(
        self,
        name: str = "default",
        *,
        alphas: Iterable[float] = (),
        delta: float | None = None,
    ) -> CalibrationDetail:
        """A calibration set with its thresholds and its curve, as `ScopeClient.calibration`."""
        return await self._transport.run(self._service.calibration(name, alphas, delta))

    async def calibrations(self) -> AsyncIterator[Calibration]:
        """Yields the calibration sets that the key may use, as `ScopeClient.calibrations`."""
        after: str | None = ""
        while after is not None:
            page = await self._transport.run(self._service.calibration_page(after))
            for calibration in page.calibrations:
                yield calibration
            after = page.next_after

    async def versions(self, name: str, *, limit: int = 100) -> tuple[Version, ...]:
        """The last changes of a calibration set, as `ScopeClient.versions`."""
        return (await self._transport.run(self._service.versions(name, limit))).versions

    async def monitor(self, name: str = "default") -> Monitor:
        """What audits and drift show about a calibration set, as `ScopeClient.monitor`."""
        return await self._transport.run(self._service.monitor(name))

    async def rollback(self, name: str, version: int, *, dry_run: bool = False) -> RollbackReport:
        """Restores an earlier version of a calibration set, as `ScopeClient.rollback`."""
        return await self._transport.run(self._service.rollback(name, version, dry_run=dry_run))

    async def preview_deletion(self, name: str) -> Deletion:
        """What the deletion of a calibration set would do; raises ScopeError."""
        return await self._transport.run(self._service.preview_deletion(name))

    async def delete_calibration(self, name: str) -> None:
        """Deletes a calibration set, as `ScopeClient.delete_calibration`."""
        await self._transport.run(self._service.delete_calibration(name))

    async def audits(
        self, calibration: str | None = None, *, status: Status | None = None
    ) -> AsyncIterator[Audit]:
        """Yields the judgments that were drawn for an audit, as `ScopeClient.audits`."""
        after: int | None = 0
        while after is not None:
            page = await self._transport.run(self._service.audit_page(calibration, status, after))
            for audit in page.audits:
                yield audit
            after = page.next_after

    async def audit_texts(self, calibration: str | None = None) -> AsyncIterator[Audit]:
        """Yields the open audits with texts, as `ScopeClient.audit_texts`."""
        after: int | None = 0
        while after is not None:
            page = await self._transport.run(self._service.audit_texts_page(calibration, after))
            for audit in page.audits:
                yield audit
            after = page.next_after

    async def label_audits(self, labels: Mapping[str, Label]) -> AuditLabels:
        """Labels judgments that were drawn for an audit, as `ScopeClient.label_audits`."""
        return await self._transport.run(self._service.label_audits(labels))

    async def close_audits(self, reasons: Mapping[str, str]) -> AuditLabels:
        """Closes audits that nobody can label, as `ScopeClient.close_audits`."""
        return await self._transport.run(self._service.close_audits(reasons))

    async def audit_trail(self, name: str) -> AsyncIterator[AuditEvent]:
        """Yields the trail of a set's audits, as `ScopeClient.audit_trail`."""
        page = await self._transport.run(self._service.audit_trail(name, None))
        for event in page.entries:
            yield event
        while page.next_before is not None:
            page = await self._transport.run(self._service.audit_trail(name, page.next_before))
            for event in page.entries:
                yield event

    async def resume(self, name: str, reason: str) -> tuple[EndedAlarm, ...]:
        """Ends the alarms of a set, as `ScopeClient.resume`."""
        return (await self._transport.run(self._service.resume(name, reason))).resumed

    async def absorb(self, name: str, **asked: "Unpack[Absorption]") -> AbsorbReport:
        """Makes labeled audits examples of a calibration set, as `ScopeClient.absorb`."""
        return await self._transport.run(self._service.absorb(name, asked))


async def _items(
    given: Iterable[T] | AsyncIterable[T], item: Callable[[T, int], Item]
) -> AsyncIterator[Item]:
    """Yields the items of an iterable, and reads only as many as are requested."""
    number = 0
    if isinstance(given, AsyncIterable):
        async for value in given:
            yield item(value, number)
            number += 1
    else:
        for value in given:
            yield item(value, number)
            number += 1


async def _cut(work: Work[R], items: AsyncIterator[Item]) -> AsyncIterator[Batch]:
    """Yields batches, and reads no more items than they need."""
    async for item in items:
        if full := work.cutter.add(item):
            yield Batch(full)
    if rest := work.cutter.rest():
        yield Batch(rest, is_last=True)
