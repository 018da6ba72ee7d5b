"""A program that folds the log of audits, or appends to it; arguments: ADDRESS (fold | write).

It prints a line for each fold, or the number of each draw after its label is stored.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from app.observability.telemetry import Telemetry
from app.ports import Store
from app.service.auditing import retention as retention_module
from app.service.auditing.absorption import Asked
from app.service.auditing.auditor import Auditor
from app.service.auditing.entries import Fold
from app.service.auditing.ledger import Ledger
from app.service.auditing.retention import DAY_S, Retention
from tests.integration.stores.backends import store_at
from tests.serving import calibrations_of, labelled, services_of
from tests.unit.service.auditing import logs

EXPIRES_S = 3600.0
OLD_DRAWS = 1500
NEW_DRAWS = 10_000
# Many steps, so that a process dies between two of them.
retention_module.STEP_ENTRIES = 25


async def prepare(store: Store) -> None:
    """Makes two versions of a set, and old draws of the first one, whose labels are absorbed."""
    async with services_of(store=store) as services:
        first = (
            await services.calibrator.add("default", [labelled(1.0, "A", number=0)])
        ).calibration
        at = time.time() - 100 * DAY_S
        fields: Any = {"write_id": first.write_id, "fingerprint": first.fingerprint}
        texts = list[str]()
        for number in range(OLD_DRAWS):
            texts.append(logs.drawn(number, at=at + number, **fields).text)
            if number % 4 == 0:
                texts.append(logs.labelled(number, "A", at=at + number).text)
        # The newest draw, which stays, is of the version in force.
        await store.append_audits(texts)
        asked = Asked(leave_out=True, even_if_infeasible=True)
        second = (
            await services.absorber.absorb("default", asked, by="ana")
        ).change.batch.calibration
        fields["write_id"] = second.write_id
        newest = logs.drawn(NEW_DRAWS, at=time.time(), version=2, **fields)
        await store.append_audits([newest.text])


class TellingAuditor(Auditor):
    """An auditor that tells of each attempt to fold."""

    on_fold: Callable[[], object] = tuple

    async def fold(self, fold_of: Callable[[Ledger], Fold | None]) -> Fold | None:
        """Folds, and tells."""
        fold = await super().fold(fold_of)
        self.on_fold()
        return fold


async def retention_of(store: Store, *, on_fold: Callable[[], object] = tuple) -> Retention:
    """Returns what folds the draws of the set in a store.

    Args:
        store: The store.
        on_fold: Called after each step.
    """
    calibrations = calibrations_of(store)
    fingerprint = (await calibrations.get("default")).fingerprint
    auditor = TellingAuditor(
        store,
        Telemetry.on_own_registry(),
        fingerprint=fingerprint,
        rate=0.0,
        expires_s=EXPIRES_S,
    )
    auditor.on_fold = on_fold
    await auditor.open()
    return Retention(auditor, calibrations, store, fingerprint=fingerprint, keep_days=30.0)


async def fold(store: Store) -> None:
    """Folds all that can be folded, and prints a line for each step."""
    retention = await retention_of(store, on_fold=lambda: print("a step", flush=True))
    await retention.run()


async def write(store: Store) -> None:
    """Appends draws with their labels without end, and prints each number when both are stored."""
    version = await store.version("default")
    assert version is not None
    for number in count(NEW_DRAWS + 1):
        now = time.time()
        draw = logs.drawn(number, at=now, write_id=version.write_id, version=2)
        label = logs.labelled(number, "A", at=now)
        await store.append_audits([draw.text])
        await store.append_audits([label.text])
        print(number, flush=True)
        await asyncio.sleep(0.01)


async def main(address: str, task: str) -> None:
    """Does a task on the store at an address."""
    store = store_at(address)
    await store.open()
    await (fold if task == "fold" else write)(store)
    await store.close()


if __name__ == "__main__":
    _, to_address, to_do = sys.argv
    asyncio.run(main(to_address, to_do))
