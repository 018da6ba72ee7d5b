"""Runs the service with the scripted judge and SQLite, and measures the stalls of its event loop.

    python -m tests.integration.processes.ticking_service PORT FOLDER

GET /stall answers with the longest stall since the previous such request, and GET /yardstick with
the duration of a fixed piece of work; both in seconds.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from app.api.application import create_application
from app.api.server import BoundedH11
from app.audits.entries import Audit, Use, pair_of, to_text
from app.core.comparison import Comparison, Criterion, Label, LabeledComparison
from app.core.score import Score
from app.judging.services import Services
from app.main import serving
from app.ports import StoredRow
from app.settings import Settings

TICK_S = 0.002
# One request of 1,000 examples fills the set.
EXAMPLES = 49_000
POOL = 10_000
SETS = 20
VERSIONS = 1000
AUDITS = 20_000

_YARDSTICK = [f"Question {i}: which of the two is better?" for i in range(100_000)]


class Silent:
    """Ignores the progress of a start."""

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...


class Clock:
    """Sleeps in short ticks, and records the largest delay of a tick."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._ticked = 0.0

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        self._ticked = time.perf_counter()
        while True:
            await asyncio.sleep(TICK_S)
            self._note()

    def _note(self) -> None:
        now = time.perf_counter()
        self._longest_s = max(self._longest_s, now - self._ticked - TICK_S)
        self._ticked = now

    def take(self) -> float:
        """The longest stall since the previous call, in seconds."""
        self._note()
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


def yardstick() -> float:
    """The duration in seconds of one call that does not release the interpreter lock."""
    begun = time.perf_counter()
    json.dumps(_YARDSTICK)
    return time.perf_counter() - begun


def labelled(number: int) -> LabeledComparison:
    """A labeled pair; every 30th label is wrong, so that thresholds are among the scores."""
    gap = (number % 4000 + 1) / 1000
    comparison = Comparison.of(f"Question {number}?", f"quality={gap}", "quality=0")
    return LabeledComparison(comparison=comparison, label="B" if number % 30 == 0 else "A")


async def fill(services: Services) -> None:
    """Makes two large sets, many small sets, one with many versions, and many audits."""
    add = services.calibrator.add
    large = [labelled(i) for i in range(EXAMPLES)]
    await add("large", large)
    await services.calibrator.pool("pooled", [each.comparison for each in large[:POOL]])
    for i in range(SETS):
        await add(f"set-{i}", large[:100])
    # One example, whose label changes with each version.
    for i in range(VERSIONS):
        label: Label = "A" if i % 2 else "B"
        await add("changed", [LabeledComparison(comparison=large[0].comparison, label=label)])
    await add("audited", large[:100])
    fingerprint = services.identity.fingerprint
    position = int(time.time() * 1e6)
    rows = [
        StoredRow(pair_of(audit_id(i)), position + i, to_text(audit(i, fingerprint, position + i)))
        for i in range(AUDITS + 1)
    ]
    texts = {
        pair_of(audit_id(i)): json.dumps({"id": audit_id(i), **TEXTS})
        for i in range(AUDITS // 2, AUDITS)
    }
    await services.store.write_audits("audited", rows, texts=texts)
    await services.auditor.catch_up()


# The texts of each drawn pair, which the store keeps as 120 kB of ASCII.
TEXTS = {"question": "é" * 20_000, "response_a": "a", "response_b": "b"}


def audit_id(number: int) -> str:
    """The id of a drawn judgment."""
    return f"{number:030x}00"


def audit(number: int, fingerprint: str, position: int) -> Audit:
    """A drawn judgment; the first half has labels, and the others have texts."""
    use = Use(
        position=position,
        criterion=Criterion(alpha=0.1, guarantee="marginal", delta=None, calibration="audited"),
        write_id="w",
        version=1,
        accepted=True,
        by="service",
        at=time.time(),
    )
    is_labeled = number < AUDITS // 2
    return Audit(
        id=audit_id(number),
        fingerprint=fingerprint,
        digest=f"{number:064x}",
        question=f"{number:064x}",
        score=Score(gap_fwd=1.0, gap_rev=(number % 4000 + 1) / 1000, label_mass=0.99),
        rate=1.0,
        uses=(use,),
        wait_s=86_400.0,
        label="A" if is_labeled else None,
        labelled_at=1.0 if is_labeled else None,
        labelled_by="ana" if is_labeled else None,
        has_texts=AUDITS // 2 <= number < AUDITS,
    )


def main(port: int, folder: str) -> None:
    """Serves until the process is ended."""
    # Every judgment is drawn with its texts, so that the draws are measured too.
    settings = Settings(
        engine="scripted",
        store_url=f"sqlite:///{folder}/sets.db",
        port=port,
        audit_rate=1.0,
        audit_texts=True,
    )
    clock = Clock()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        async with serving(settings, Silent(), on_lost=sys.exit) as services:
            await fill(services)
            # Make the state of a start that found all sets in its store.
            gc.collect()
            gc.freeze()
            ticking = asyncio.create_task(clock.run())
            yield services
            ticking.cancel()

    application = create_application(settings, opened, keys=None)
    own = {"/stall": clock.take, "/yardstick": yardstick}

    async def with_clock(scope: Scope, receive: Receive, send: Send) -> None:
        measure = own.get(scope.get("path", ""))
        if measure is None:
            await application(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(measure()).encode()})

    uvicorn.run(with_clock, host="127.0.0.1", port=port, log_level="warning", http=BoundedH11)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
