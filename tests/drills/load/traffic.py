"""Steady small traffic on one service: judging, calibrating, readiness checks; all is checked."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.drills.load.client import Answer, Client
from tests.drills.load.ledger import Ledger, OnAnswer, Writer
from tests.drills.load.material import ALPHA, Pair
from tests.drills.load.verdicts import fault_of, ground_of

JUDGMENTS_PER_S = 25.0
_READY_EVERY_S = 0.1
# Enough labels for a feasible alpha = 0.1.
_FIRST_POSTS, _FIRST_BATCHES = 5, 8
_BATCH = 16
# Pause of a client that judges batches: clients must leave the services some CPU.
_BATCH_PAUSE_S = 0.05


class Seen(NamedTuple):
    """One answer, with the kind of its request."""

    kind: str
    answer: Answer


class Judging:
    """Judges pairs, and checks every verdict against the set that it names.

    Args:
        client: Client of the service.
        ledger: Log of the set that verdicts rest on.
        on_answer: Receives every answer with its kind.
        on_fault: Receives every broken promise.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        on_answer: OnAnswer,
        on_fault: Callable[[str], None],
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._on_answer = on_answer
        self._on_fault = on_fault
        self.verdicts = 0

    async def single(self, pair: Pair) -> Answer:
        """Judges one pair."""
        answer = await self._ask("judge", pair.fields)
        if answer.status == 200:
            self._check(pair, answer.body)
        return answer

    async def batch(self, pairs: Sequence[Pair]) -> Answer:
        """Judges pairs in one request; items that got an error are left to the caller."""
        comparisons = {"comparisons": [pair.fields for pair in pairs]}
        answer = await self._ask("judge/batch", comparisons)
        if answer.status == 200:
            for pair, result in zip(pairs, answer.body["results"], strict=True):
                if "error" not in result:
                    self._check(pair, result)
        return answer

    async def _ask(self, kind: str, body: dict[str, Any]) -> Answer:
        content = json.dumps({**body, "alpha": ALPHA, "calibration": self._ledger.name}).encode()
        answer = await self._client.ask("POST", f"/{kind}", content)
        self._on_answer(kind, answer)
        return answer

    def _check(self, pair: Pair, judgment: dict[str, Any]) -> None:
        self.verdicts += 1
        fault = fault_of(judgment, p_bar=pair.p_bar)
        if fault:
            self._on_fault(f"a judgment of {pair.fields}: {fault}")
        self._ledger.rests_on(ground_of(judgment))


class Traffic:
    """The clients of one service, and their answers.

    Args:
        port: Port that the clients connect to.
        pairs: Pairs to judge, in turns.
        batch_clients: Number of clients that judge batches, one after the other.
    """

    def __init__(
        self,
        port: int,
        pairs: Sequence[Pair],
        *,
        batch_clients: int = 0,
    ) -> None:
        self._client = Client(port)
        self._pairs = list(pairs)
        self._batch_clients = batch_clients
        self.ledger = Ledger("faults")
        self._writer = Writer(self._client, self.ledger, self._note)
        self.seen: list[Seen] = []
        self.wrong: list[str] = []
        self.judging = Judging(self._client, self.ledger, self._note, self.wrong.append)
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            for _ in range(_FIRST_POSTS):
                await self._writer.post(_FIRST_BATCHES)
            for pair in self._pairs:
                answer = await self.judging.single(pair)
                assert answer.status == 200, answer
        except BaseException:
            self._client.drop_connections()
            raise
        self.seen.clear()
        clients = [self._judge_steadily(), self._calibrate_steadily(), self._ask_steadily()]
        clients += [self._judge_batches(place) for place in range(self._batch_clients)]
        self._tasks = [asyncio.ensure_future(client) for client in clients]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stopping.set()
        if exc is not None:
            for task in self._tasks:
                task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=exc is not None)
        finally:
            self._client.drop_connections()

    async def stop(self) -> None:
        """Stops the clients when their requests in flight are answered."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def audit(self) -> None:
        """Compares the calibration set with the client's log; see `Writer.audit`."""
        await self._writer.audit()

    def check_tasks(self) -> None:
        """Raises the exception of a client that died; otherwise missing traffic would look fine."""
        for task in self._tasks:
            if task.done() and not self._stopping.is_set():
                task.result()

    def _note(self, kind: str, answer: Answer) -> None:
        if kind != "audit":
            self.seen.append(Seen(kind, answer))
        if answer.lacks_retry_after:
            self.wrong.append(f"{kind}: {answer.outcome} without Retry-After")

    async def _judge_steadily(self) -> None:
        loop = asyncio.get_running_loop()
        under_way: set[asyncio.Task[Answer]] = set()
        began = loop.time()
        for i in itertools.count():
            # Scheduled by the clock: a service that hangs gets as many requests.
            await asyncio.sleep(max(0.0, began + i / JUDGMENTS_PER_S - loop.time()))
            if self._stopping.is_set():
                break
            pair = self._pairs[i % len(self._pairs)]
            task = asyncio.ensure_future(self.judging.single(pair))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _judge_batches(self, place: int) -> None:
        while not self._stopping.is_set():
            start = place * _BATCH % len(self._pairs)
            pairs = self._pairs[start : start + _BATCH]
            answer = await self.judging.batch(pairs)
            if answer.status == 200:
                refused = [each["error"] for each in answer.body["results"] if "error" in each]
                self.wrong += [f"an item of a batch got {error['code']}" for error in refused]
            place += 1
            await asyncio.sleep(_BATCH_PAUSE_S)

    async def _calibrate_steadily(self) -> None:
        while not self._stopping.is_set():
            await self._writer.post()

    async def _ask_steadily(self) -> None:
        while not self._stopping.is_set():
            self._note("readyz", await self._client.ask("GET", "/readyz"))
            await asyncio.sleep(_READY_EVERY_S)
