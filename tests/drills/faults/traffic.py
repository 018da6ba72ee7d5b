"""Steady small traffic on one service: judging, calibrating, readiness checks."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from tests.drills.faults.ledger import Ledger, Writer
from tests.drills.faults.material import ALPHA, Pair
from tests.drills.faults.talking import Answer, Client
from tests.drills.faults.verdicts import fault_of, ground_of

JUDGMENTS_PER_S = 25.0
_READY_EVERY_S = 0.1
# Enough labels for a feasible alpha = 0.1.
_FIRST_POSTS, _FIRST_BATCHES = 5, 8
_NEEDS_RETRY_AFTER = (429, 503, 504)


class Seen(NamedTuple):
    """One answer, with the kind of its request."""

    kind: str
    answer: Answer


class Traffic:
    """The clients of one service, and their answers.

    Args:
        port: Port that the clients connect to.
        pairs: Pairs to judge, in turns.
        judged_by: The calibration set that judgments rest on.
        knows_judge: Whether the judge's scores of the examples are known.
        tolerance: Allowed difference in p_bar between two judgments of one pair.
    """

    def __init__(
        self,
        port: int,
        pairs: Sequence[Pair],
        *,
        judged_by: str = "faults",
        knows_judge: bool = True,
        tolerance: float = 1e-9,
    ) -> None:
        self._client = Client(port)
        self._pairs = list(pairs)
        self._judged_by = judged_by
        self._tolerance = tolerance
        self.ledger = Ledger("faults", knows_judge=knows_judge)
        self._writer = Writer(self._client, self.ledger, self._note)
        self.seen: list[Seen] = []
        self.verdicts = 0
        self.wrong: list[str] = []
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            for _ in range(_FIRST_POSTS):
                await self._writer.post(_FIRST_BATCHES)
            for i, pair in enumerate(self._pairs):
                answer = await self._judge(i)
                assert answer.status == 200, answer
                if pair.p_bar is None:
                    self._pairs[i] = pair._replace(p_bar=answer.body["p_bar"])
        except BaseException:
            self._client.drop_connections()
            raise
        self.seen.clear()
        ways = (self._judge_steadily(), self._calibrate_steadily(), self._ask_steadily())
        self._tasks = [asyncio.ensure_future(way) for way in ways]
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
        if answer.status in _NEEDS_RETRY_AFTER and "retry-after" not in answer.headers:
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
            task = asyncio.ensure_future(self._judge(i % len(self._pairs)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _judge(self, place: int) -> Answer:
        pair = self._pairs[place]
        asked = {**pair.fields, "alpha": ALPHA, "calibration": self._judged_by}
        answer = await self._client.ask("POST", "/judge", json.dumps(asked).encode())
        self._note("judge", answer)
        if answer.status == 200:
            self.verdicts += 1
            fault = fault_of(answer.body, p_bar=pair.p_bar, tolerance=self._tolerance)
            if fault:
                self.wrong.append(f"pair {place}: {fault}")
            if self._judged_by == self.ledger.name:
                self.ledger.rests_on(ground_of(answer.body))
        return answer

    async def _calibrate_steadily(self) -> None:
        while not self._stopping.is_set():
            await self._writer.post()

    async def _ask_steadily(self) -> None:
        while not self._stopping.is_set():
            self._note("readyz", await self._client.ask("GET", "/readyz"))
            await asyncio.sleep(_READY_EVERY_S)
