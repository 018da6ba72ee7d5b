"""One fault: caused under traffic, held for a while and healed; and the clients' view of it."""

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
# The start of a killed service alone takes 33 s at a load of 10.
_LONGEST_HEALING_S = 180.0
_SLOWER = 4.0
# Allowed answers of /judge unless a fault names others.
SERVED = frozenset({"200", "200 stale"})
# Allowed before and after a fault. The store may be slow on two busy cores.
_FINE = {"judge": SERVED, "calibrate": {"200"}, "readyz": {"200 ready", "200 degraded"}}


@dataclass(frozen=True, kw_only=True)
class Fault(Generic[S]):
    """Something that happens to a service.

    Args:
        name: Name for the command line and the table.
        how: How the fault is caused, for the table.
        scene: Makes the service and everything around it.
        cause: Causes the fault.
        heal: Undoes the fault.
        judge_may: Every allowed answer of /judge during the fault.
        slowest_judge_s: Longest allowed judgment during the fault. On a slow machine the limit is
            `_SLOWER` times the longest judgment before the fault.
        may_lose: Why acknowledged examples may be lost; empty if none may.
        obstacle: Returns the reason why the fault cannot be caused here; None if it can.
        ends_service: Whether the fault ends the service's process.
        at_most_s: Upper limit of the duration.
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

    async def run(self, folder: Path, seconds: float) -> "FaultReport":
        """Causes the fault under traffic for that long, heals it, and checks the outcome."""
        outcome = FaultReport(self.name, self.how, min(seconds, self.at_most_s))
        async with self.scene(folder) as scene, scene.traffic() as traffic:
            try:
                await self._lived_through(scene, traffic, outcome)
            except BaseException:
                # An unhealed fault would delay the cleanup of the scene.
                with contextlib.suppress(Exception):
                    await self.heal(scene)
                raise
        return outcome

    async def _lived_through(self, scene: S, traffic: Traffic, outcome: "FaultReport") -> None:
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
    """When /readyz and /calibrate first succeeded with requests that began after the healing."""
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
        # An answer to an earlier request says nothing about the connections of the next one: a post
        # that began before the healing can succeed, and the next one can still get a 503.
        if found == kind and answer.began >= healed and answer.outcome == outcome:
            return answer.began + answer.seconds
    return None


@dataclass
class FaultReport:
    """The outcome of one fault.

    Args:
        name: Name of the fault.
        how: How the fault was caused.
        seconds: Duration of the fault.
        judge: Answer of /judge -> count, from the fault until the service was healthy again.
            `calibrate` and `readyz` are the same for their routes.
        judge_slowest_s: Slowest answer of /judge in that time.
        usual_slowest_s: Slowest answer of /judge before the fault.
        examples: Number of acknowledged examples.
        lost: Number of acknowledged examples that are not in the set at the end.
        doubled: Number of examples that are in the set but in no client's log.
        verdicts: Number of checked judgments.
        versions: Number of different calibrations that the checked judgments name.
        healthy_s: Seconds from the healing until /readyz and /calibrate succeed; None for never.
        wrong: Broken promises, one sentence each.
        notes: Other remarks.
        skipped: Why the fault was not caused; empty if it was.
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
        """Counts the clients' answers from the fault until the service was healthy again."""
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
        """Compares the observed answers with the allowed ones."""
        ledger = traffic.ledger
        self.examples, self.verdicts = ledger.acknowledged, traffic.judging.verdicts
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
            self.wrong.append(f"{self.doubled} examples are in the set twice, or were never posted")
        self.wrong = list(dict.fromkeys(self.wrong))[:20]

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Route -> answer -> count."""
        return {"judge": self.judge, "calibrate": self.calibrate, "readyz": self.readyz}


def _may(allowed: frozenset[str], outcome: str) -> bool:
    """Whether an outcome is allowed; an allowed one that ends in * is a prefix."""
    return any(
        outcome.startswith(each[:-1]) if each.endswith("*") else outcome == each for each in allowed
    )
