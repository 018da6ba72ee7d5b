"""One fault: caused under traffic, held for a while, healed; and what the clients saw of it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tests.drills.faults.scene import Scene
from tests.drills.faults.traffic import Seen, Traffic

S = TypeVar("S", bound=Scene)

_BEFORE_S = 0.5
_AFTER_S = 0.5
# A killed service needs 33 s for its start alone at a load of 10.
_LONGEST_HEALING_S = 180.0
_SLOWER = 4.0
# Allowed of /judge wherever a fault names nothing else.
SERVED = frozenset({"200", "200 stale"})
# Before a fault and after it. Two cores that others use too may hold the store up for long enough.
_FINE = {"judge": SERVED, "calibrate": {"200"}, "readyz": {"200 ready", "200 degraded"}}


@dataclass(frozen=True)
class Fault(Generic[S]):
    """Something that happens to a service.

    Args:
        name: For the command line and the table.
        how: How it is caused, for the table.
        scene: What stands around the service.
        cause: Makes it happen.
        heal: Undoes it.
        judge_may: Everything that /judge may answer while it lasts.
        slowest_judge_s: Longest that a judgment may take while it lasts; on a machine that is slow
            already, `_SLOWER` times the longest before it.
        may_lose: Why acknowledged examples may be lost; empty where none may.
        obstacle: Why it cannot be caused here; None if it can.
        ends_service: Whether the service's process ends by it.
        at_most_s: It lasts no longer, whatever is asked for.
    """

    name: str
    how: str
    scene: Callable[[Path], AbstractAsyncContextManager[S]]
    cause: Callable[[S], Awaitable[None]]
    heal: Callable[[S], Awaitable[None]]
    judge_may: frozenset[str] = SERVED
    slowest_judge_s: float = 1.0
    may_lose: str = ""
    obstacle: Callable[[], str | None] = lambda: None
    ends_service: bool = False
    at_most_s: float = 3600.0

    async def run(self, folder: Path, seconds: float) -> "Outcome":
        """Causes it under traffic for so long, heals it, and looks at what became of everything."""
        outcome = Outcome(self.name, self.how, min(seconds, self.at_most_s))
        async with self.scene(folder) as scene, scene.traffic() as traffic:
            try:
                await self._lived_through(scene, traffic, outcome)
            except BaseException:
                # A fault that is not healed would hold up everything that is closed now.
                with contextlib.suppress(Exception):
                    await self.heal(scene)
                raise
        return outcome

    async def _lived_through(self, scene: S, traffic: Traffic, outcome: "Outcome") -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_BEFORE_S)
        caused = loop.time()
        await self.cause(scene)
        await asyncio.sleep(max(0.0, caused + outcome.seconds - loop.time()))
        await self.heal(scene)
        healed = loop.time()
        healthy = await _healthy(traffic, healed)
        await asyncio.sleep(_AFTER_S)
        await traffic.stop()
        outcome.describe(traffic.seen, caused, healed, healthy)
        if healthy is not None:
            await traffic.audit()
        if not self.ends_service and scene.service.popen.poll() is not None:
            outcome.wrong.append("the service's process has ended")
        outcome.judge_by(self, traffic)


async def _healthy(traffic: Traffic, healed: float) -> float | None:
    """When /readyz said ready and /calibrate 200 for the first time after the healing."""
    deadline = healed + _LONGEST_HEALING_S
    loop = asyncio.get_running_loop()
    while loop.time() < deadline:
        traffic.check_tasks()
        ready = _first_end(traffic.seen, "readyz", "200 ready", healed)
        calibrated = _first_end(traffic.seen, "calibrate", "200", healed)
        if ready is not None and calibrated is not None:
            return max(ready, calibrated)
        await asyncio.sleep(0.02)
    return None


def _first_end(seen: Sequence[Seen], kind: str, outcome: str, healed: float) -> float | None:
    for found, answer in seen:
        ended = answer.began + answer.seconds
        # Begun before, /readyz would tell of the fault's time; a post may have waited for its end.
        counts = answer.began >= healed if kind == "readyz" else ended >= healed
        if found == kind and counts and answer.outcome == outcome:
            return ended
    return None


@dataclass
class Outcome:
    """What became of one fault.

    Args:
        judge: Outcome -> how often, from the fault until all was healthy; likewise the others.
        judge_slowest_s: Slowest answer of /judge in that time.
        usual_slowest_s: Slowest answer of /judge before the fault.
        examples: Acknowledged in all.
        lost: Of these, not in the set at the end.
        doubled: In the set and in no client's log.
        verdicts: Judgments that were checked.
        versions: Different calibrations that they rest on and that were checked.
        healthy_s: From the healing until /readyz and /calibrate say yes; None for never.
        wrong: Whatever should not have been.
        notes: Whatever else is to be told.
        skipped: Why it was not caused.
    """

    name: str
    how: str
    seconds: float
    judge: dict[str, int] = field(default_factory=dict)
    judge_slowest_s: float = 0.0
    usual_slowest_s: float = 0.0
    calibrate: dict[str, int] = field(default_factory=dict)
    calibrate_slowest_s: float = 0.0
    readyz: dict[str, int] = field(default_factory=dict)
    readyz_slowest_s: float = 0.0
    examples: int = 0
    lost: int = 0
    doubled: int = 0
    verdicts: int = 0
    versions: int = 0
    healthy_s: float | None = None
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""

    def describe(
        self, seen: Sequence[Seen], caused: float, healed: float, healthy: float | None
    ) -> None:
        """Counts what clients saw from the fault until all was healthy."""
        end = healthy if healthy is not None else float("inf")
        self.healthy_s = None if healthy is None else healthy - healed
        for kind in ("judge", "calibrate", "readyz"):
            answers = [answer for found, answer in seen if found == kind]
            during = [a for a in answers if a.began + a.seconds >= caused and a.began < end]
            counts = Counter(answer.outcome for answer in during)
            setattr(self, kind, dict(counts.most_common()))
            slowest = max((answer.seconds for answer in during), default=0.0)
            setattr(self, f"{kind}_slowest_s", slowest)
            if kind == "judge":
                before = (a.seconds for a in answers if a.began + a.seconds < caused)
                self.usual_slowest_s = max(before, default=0.0)
            fine = _FINE[kind]
            others = [a for a in answers if a not in during and a.outcome not in fine]
            self.wrong += sorted({f"{kind}: {a.outcome} before or after the fault" for a in others})

    def judge_by(self, fault: Fault[S], traffic: Traffic) -> None:
        """Compares what was seen with what may be."""
        ledger = traffic.ledger
        self.examples, self.verdicts = ledger.acknowledged, traffic.verdicts
        self.lost, self.doubled, self.versions = ledger.lost, ledger.doubled, ledger.checked
        if self.healthy_s is None:
            self.wrong.append(f"not healthy within {_LONGEST_HEALING_S:g} s")
        for kind, counts in self.counts().items():
            self.wrong += [f"{kind}: {each}" for each in counts if each.startswith("500")]
        self.wrong += [f"judge: {each}" for each in self.judge if not _may(fault.judge_may, each)]
        slowest_s = max(fault.slowest_judge_s, _SLOWER * self.usual_slowest_s)
        if self.judge_slowest_s > slowest_s:
            self.wrong.append(f"judge: {self.judge_slowest_s:.2f} s where {slowest_s:.2g} may be")
        self.wrong += traffic.wrong
        if fault.may_lose:
            self.notes += [fault.may_lose, *ledger.wrong[:3]]
        else:
            self.wrong += ledger.wrong
            if self.lost:
                self.wrong.append(f"{self.lost} examples were lost")
        if self.doubled:
            self.wrong.append(f"{self.doubled} examples are there that nobody posted, or twice")
        self.wrong = list(dict.fromkeys(self.wrong))[:20]

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """What was answered, by route."""
        return {"judge": self.judge, "calibrate": self.calibrate, "readyz": self.readyz}


def _may(allowed: frozenset[str], outcome: str) -> bool:
    """Whether an outcome is among those allowed; what ends in * allows all that begin so."""
    return any(
        outcome.startswith(each[:-1]) if each.endswith("*") else outcome == each for each in allowed
    )
