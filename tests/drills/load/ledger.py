"""A calibrating client and its log of acknowledged writes, with which the set is compared."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.drills.load.client import Answer, Client
from tests.drills.load.material import ALPHA, BATCH, calibrate_body, threshold_of
from tests.drills.load.verdicts import Ground, same_threshold

OnAnswer = Callable[[str, Answer], None]

# Judgments name a version at most as old as a fault is long; older versions are not kept.
_KEPT_VERSIONS = 400
_AUDIT_BATCHES = 8
# Pause after each request.
_PAUSE_S = 0.1
_AUDIT_TIMEOUT_S = 60.0


class State(NamedTuple):
    """One version of a set: its number of examples, and lambda_hat(0.1)."""

    n: int
    threshold: float | None


class Ledger:
    """The expected content of a set, from the log of the only client that writes it.

    Args:
        name: Name of the set.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: tuple[int, ...] = ()
        self.version = 0
        self.acknowledged = 0
        self.lost = 0
        self.doubled = 0
        self.checked = 0
        self.wrong: list[str] = []
        # A version number may occur twice if a store was restored to an earlier state.
        self._states: dict[int, list[State]] = {}
        self._grounds: set[Ground] = set()

    def accept(self, found: dict[str, Any], batches: tuple[int, ...], *, attempts: int) -> None:
        """Records an acknowledged write, and compares the set in its answer with the log.

        Args:
            found: The set in the service's answer.
            batches: The batches that the set must contain.
            attempts: Number of times that the write was sent; each may have made a version.
        """
        shown = State(found["n"], _threshold_in(found))
        state = State(len(batches) * BATCH, threshold_of(batches))
        if shown.n != state.n or not same_threshold(shown.threshold, state.threshold):
            self._note(f"version {found['version']} is {shown}, the client's log says {state}")
        highest = self.version + attempts
        # A write without a change makes no version.
        lowest = self.version + (batches != self.batches)
        if not lowest <= found["version"] <= highest:
            self._note(f"version {found['version']} came after {self.version}, {attempts} attempts")
        first = min(self.version + 1, found["version"])
        for version in range(first, found["version"] + 1):
            self._states.setdefault(version, []).append(state)
        for version in sorted(self._states)[:-_KEPT_VERSIONS]:
            del self._states[version]
        self.version, self.batches = found["version"], batches
        self._settle()

    def rests_on(self, ground: Ground) -> None:
        """Records a judgment's calibration, which is checked once its write is known."""
        self._grounds.add(ground)

    def _settle(self) -> None:
        """Checks the judgments whose versions are known by now."""
        oldest = min(self._states, default=0)
        for ground in sorted(self._grounds, key=lambda g: g.version):
            if ground.version > self.version:
                break
            self._grounds.discard(ground)
            if ground.version < oldest:
                continue
            self.checked += 1
            states = self._states.get(ground.version, [])
            if not any(
                ground.n == s.n and same_threshold(ground.threshold, s.threshold) for s in states
            ):
                self._note(f"a judgment rests on {ground}, the client's log says {states}")

    def finish(self) -> None:
        """Checks the remaining judgments: a version that was never written is a fault."""
        self._settle()
        for ground in sorted(self._grounds, key=lambda g: g.version):
            self._note(f"a judgment rests on {ground}, the last version is {self.version}")
        self._grounds.clear()

    def _note(self, text: str) -> None:
        self.wrong.append(f"{self.name}: {text}")
        # One mismatch may repeat with every answer; the list must not grow in a long run.
        del self.wrong[50:]


def _threshold_in(found: dict[str, Any]) -> float | None:
    (threshold,) = (
        row["threshold"]
        for row in found["thresholds"]
        if (row["alpha"], row["guarantee"]) == (ALPHA, "marginal")
    )
    return None if threshold is None else float(threshold)


class Writer:
    """Posts numbered batches to one set, each again and again until it is acknowledged.

    Args:
        client: Client of the service.
        ledger: Log of the set; no other client writes the set.
        on_answer: Receives every answer with its kind.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        on_answer: OnAnswer,
    ) -> None:
        self._client = client
        self.ledger = ledger
        self._on_answer = on_answer
        self._next_batch = 0

    async def post(self, batches: int = 1) -> None:
        """Adds that many new batches in one post."""
        new = tuple(range(self._next_batch, self._next_batch + batches))
        self._next_batch += batches
        content = calibrate_body(self.ledger.name, new)
        answer, attempts = await self._until_done("calibrate", "POST", "/calibrate", content)
        if answer.status != 200:
            self.ledger.wrong.append(f"{self.ledger.name}: a post got {answer.outcome}")
            return
        found, size = answer.body, batches * BATCH
        whole = (size, 0) if attempts == 1 else (found["added"], size - found["added"])
        if found["added"] not in (0, size) or (found["added"], found["updated"]) != whole:
            self.ledger.wrong.append(
                f"{self.ledger.name}: of {size} examples, posted {attempts} times, "
                f"{found['added']} were added and {found['updated']} updated"
            )
        self.ledger.acknowledged += size
        self.ledger.accept(found, (*self.ledger.batches, *new), attempts=attempts)

    async def _until_done(
        self, kind: str, method: str, path: str, content: bytes = b""
    ) -> tuple[Answer, int]:
        """Sends a request until another attempt would not change the answer."""
        attempts = 0
        while True:
            answer = await self._client.ask(method, path, content)
            attempts += 1
            self._on_answer(kind, answer)
            await asyncio.sleep(_PAUSE_S)
            # Examples that the engine failed on are listed in the answer, and are not in the set.
            failed = answer.status == 200 and answer.body.get("failed", 0) > 0
            if 0 < answer.status < 500 and answer.status != 429 and not failed:
                return answer, attempts

    async def audit(self) -> None:
        """Posts everything again and checks the set: the post must add nothing.

        An acknowledged example that is added now was lost. A set larger than the client's log
        contains an example twice.
        """
        async with asyncio.timeout(_AUDIT_TIMEOUT_S):
            for start in range(0, len(self.ledger.batches), _AUDIT_BATCHES):
                await self._post_again(self.ledger.batches[start : start + _AUDIT_BATCHES])
            while True:
                answer = await self._client.ask("GET", f"/calibrations/{self.ledger.name}")
                if answer.status in (200, 404):
                    break
                await asyncio.sleep(_PAUSE_S)
        n = answer.body["n"] if answer.status == 200 else 0
        expected = len(self.ledger.batches) * BATCH
        self.ledger.doubled += max(0, n - expected)
        self.ledger.lost += max(0, expected - n)
        self.ledger.finish()

    async def _post_again(self, batches: Sequence[int]) -> None:
        content = calibrate_body(self.ledger.name, batches)
        answer, attempts = await self._until_done("audit", "POST", "/calibrate", content)
        if answer.status != 200:
            self.ledger.wrong.append(f"{self.ledger.name}: posting again got {answer.outcome}")
            return
        self.ledger.lost += answer.body["added"]
        self.ledger.accept(answer.body, self.ledger.batches, attempts=attempts)
