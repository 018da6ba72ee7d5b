"""The clients of a soak: judgments at a fixed rate, writers of sets, keys that come and go."""

import asyncio
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.drills.faults.client import Answer, Client
from tests.drills.faults.ledger import Writer
from tests.drills.faults.material import scripted_pairs
from tests.drills.faults.traffic import Judging

BATCH = 16
_BATCH_SHARE = 0.4
_TICK_S = 0.02
# Most requests in flight; requests beyond that are not sent, but counted.
_MOST_UNDER_WAY = 600
# These posts come before the load: later, posts of this size would never be admitted.
_FIRST_POSTS, _FIRST_BATCHES = 10, 4
_LARGEST_SET = 60
_KEY_EVERY_S = 20.0
# The service promises one second; the rest is for a stalled service and two busy cores.
_KEY_PATIENCE_S = 25.0
_MAY = {
    "judge": {
        "200",
        "200 stale",
        "429 overloaded",
        "503 store_unavailable",
        "504 deadline_exceeded",
        "404 calibration_not_found",
    },
    "batch item": {"judgment", "store_unavailable", "calibration_not_found"},
    "calibrate": {"200", "429 overloaded", "503 store_unavailable", "504 deadline_exceeded"},
}
_MAY["judge/batch"] = _MAY["judge"]
_MAY["delete"] = _MAY["calibrate"] | {"204", "404 calibration_not_found"}
_MAY["rollback"] = _MAY["audit"] = _MAY["calibrate"]


class Log:
    """The clients' observations as counts: the log does not grow with the run."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.slowest_s: dict[str, dict[str, float]] = {}
        self.wrong: list[str] = []
        # Times of judgments by quarter powers of two, in milliseconds.
        self._times: Counter[int] = Counter()

    def count(self, kind: str, outcome: str) -> None:
        """Counts an outcome, and notes one that breaks a promise."""
        self.counts.setdefault(kind, Counter())[outcome] += 1
        if kind in _MAY and outcome not in _MAY[kind]:
            self.note(f"{kind}: {outcome}")

    def answer(self, kind: str, answer: Answer) -> None:
        """Counts an answer."""
        self.count(kind, answer.outcome)
        slowest = self.slowest_s.setdefault(kind, {})
        slowest[answer.outcome] = max(slowest.get(answer.outcome, 0.0), answer.seconds)
        if kind == "judge" and answer.status == 200:
            self._times[round(4 * math.log2(max(answer.seconds, 1e-5) * 1e3))] += 1
        if answer.lacks_retry_after:
            self.note(f"{kind}: {answer.outcome} without Retry-After")

    def note(self, text: str) -> None:
        """Notes a broken promise; each text once."""
        if text not in self.wrong and len(self.wrong) < 100:
            self.wrong.append(text)

    def quantile_s(self, share: float) -> float | None:
        """A quantile of the times of single judgments, within a fifth; None without judgments."""
        left = share * self._times.total()
        for place in sorted(self._times):
            left -= self._times[place]
            if left <= 0:
                return float(2 ** (place / 4) / 1e3)
        return None


class Load:
    """Sends single comparisons and batches at a fixed rate, whatever the earlier ones do."""

    def __init__(self, judging: Judging, log: Log, sets: Sequence[str]) -> None:
        self._judging = judging
        self._log = log
        self._sets = sets
        self._pairs = scripted_pairs()
        self._rng = random.Random(7)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def at_rate(self, comparisons_per_s: float, stopping: asyncio.Event) -> None:
        """Sends until `stopping` is set, then waits for the requests in flight."""
        loop = asyncio.get_running_loop()
        due, last = 0.0, loop.time()
        while not stopping.is_set():
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            due, last = due + (now - last) * comparisons_per_s, now
            while due >= 1:
                batch = self._rng.random() < _BATCH_SHARE / BATCH
                due -= BATCH if batch else 1
                if len(self._under_way) >= _MOST_UNDER_WAY:
                    self._log.count("not sent", "too many in flight")
                    continue
                task = asyncio.ensure_future(self._batch() if batch else self.single())
                self._under_way.add(task)
                task.add_done_callback(self._done)
        await asyncio.gather(*self._under_way)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.note(f"a client: {task.exception()!r}")

    async def single(self) -> Answer:
        """Judges one comparison."""
        pair, calibration = self._rng.choice(self._pairs), self._rng.choice(self._sets)
        return await self._judging.single(pair, calibration)

    async def _batch(self) -> None:
        pairs = self._rng.choices(self._pairs, k=BATCH)
        answer = await self._judging.batch(pairs, self._rng.choice(self._sets))
        if answer.status == 200:
            for result in answer.body["results"]:
                error = result.get("error")
                self._log.count("batch item", error["code"] if error else "judgment")


async def write_steadily(
    writer: Writer, rng: random.Random, stopping: asyncio.Event, *, first: asyncio.Event
) -> None:
    """Adds, rolls back, deletes and creates in turn, each until it is acknowledged.

    Args:
        writer: Writer of a set that no other client writes.
        rng: Chooses the next action.
        stopping: No new action begins once this is set.
        first: Set as soon as the set exists.
    """
    for _ in range(_FIRST_POSTS):
        await writer.post(_FIRST_BATCHES)
    first.set()
    while not stopping.is_set():
        what = rng.random()
        if what < 0.05 or len(writer.ledger.batches) >= _LARGEST_SET:
            await writer.delete()
            await writer.post()
        elif what < 0.2:
            await writer.roll_back(rng)
        else:
            await writer.post()


class Keys:
    """The keys file, changed with the command that users have."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.slowest_s = 0.0

    def add(self, name: str, roles: Sequence[str]) -> str:
        """Creates a key."""
        options = [word for role in roles for word in ("--role", role)]
        return self._command("add", name, *options).strip().splitlines()[-1].strip()

    def revoke(self, name: str) -> None:
        """Revokes a key."""
        self._command("revoke", name)

    def _command(self, *words: str) -> str:
        program = str(Path(sys.executable).with_name("scope-judge"))
        command = [program, "keys", *words, "--file", str(self.file)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    async def come_and_go(self, client: Client, log: Log, stopping: asyncio.Event) -> None:
        """Creates and revokes a key again and again; the service must notice both."""
        number = 0
        while not stopping.is_set():
            name, number = f"guest-{number}", number + 1
            key = await asyncio.to_thread(self.add, name, ["judge"])
            await self._noticed(client, log, key, is_valid=True)
            await asyncio.to_thread(self.revoke, name)
            await self._noticed(client, log, key, is_valid=False)
            log.count("keys", "added and revoked")
            try:
                await asyncio.wait_for(stopping.wait(), _KEY_EVERY_S)
            except TimeoutError:
                continue

    async def _noticed(self, client: Client, log: Log, key: str, *, is_valid: bool) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() - began < _KEY_PATIENCE_S:
            answer = await client.ask("GET", "/info", key=key)
            if answer.status and (answer.status != 401) is is_valid:
                self.slowest_s = max(self.slowest_s, loop.time() - began)
                return
            await asyncio.sleep(0.1)
        log.note(f"a key was not {'accepted' if is_valid else 'refused'} in {_KEY_PATIENCE_S:g} s")
