"""GET /calibrations/{name}/folded-audits, and the note of the monitor about labels that wait."""

import time
from typing import Any

from app.service.auditing.retention import DAY_S
from app.stores.memory import MemoryStore
from app.wire.monitor import MonitorOut
from tests.serving import client_of, services_of
from tests.serving import labelled as example
from tests.unit.service.auditing import logs

ROUTE = "/calibrations/default/folded-audits"
OLD = time.time() - 100 * DAY_S
SETTINGS: Any = {"audit_keep_days": 30.0}


async def aged_store() -> MemoryStore:
    """A store with four draws of an old version, of which the third has a label."""
    store = MemoryStore()
    async with services_of(store=store) as services:
        report = await services.calibrator.add("default", [example(1.0, "A", number=0)])
        version = report.calibration
        draws = [
            logs.drawn(
                number,
                write_id=version.write_id,
                version=version.version,
                fingerprint=services.identity.fingerprint,
                at=OLD + number,
            )
            for number in range(1, 5)
        ]
        label = logs.labelled(3, "A", at=OLD + 5)
        await store.append_audits([*(draw.text for draw in draws), label.text])
        await services.calibrator.add("default", [example(1.0, "A", number=1)])
    return store


async def test_the_answer_has_the_counts_and_what_holds_folding_up() -> None:
    store = await aged_store()
    async with services_of(store=store, **SETTINGS) as services:
        assert await services.retention.run() == 2
    async with client_of(store=store, **SETTINGS) as client:
        answer = (await client.get(ROUTE)).json()
        assert answer["keep_days"] == 30.0
        assert answer["held"]["labels"] == 1
        assert answer["held"]["oldest"] == logs.draw_id(3)
        assert answer["held"]["drawn_at"] > answer["until"]
        (folded,) = answer["folded"]
        assert {name: folded[name] for name in ("version", "alpha", "guarantee", "delta")} == {
            "version": 1,
            "alpha": 0.1,
            "guarantee": "marginal",
            "delta": None,
        }
        numbers = ("draws", "abstained", "right", "wrong", "ties", "unlabelled")
        assert [folded[name] for name in numbers] == [2, 0, 0, 0, 0, 2]
        assert folded["last_judged_at"] == answer["until"]
        path, body = "/calibrations/default/absorb", {"unlabelled": "leave_out"}
        refused = await client.post(path, json={"all": True, **body})
        assert refused.status_code == 409
        assert refused.json()["code"] == "audits_incomplete"
        # The time that the refusal names is right.
        since = refused.json()["detail"].split(" before ")[1].split(" ")[0]
        taken = await client.post(path, json={"since": since, **body})
        assert taken.json()["added"] == 1


async def test_the_monitor_says_what_holds_folding_up() -> None:
    async with services_of(store=await aged_store(), **SETTINGS) as services:
        calibration = await services.calibrations.get("default")

        async def note() -> str:
            report = await services.monitor.of(calibration)
            drift = await services.drift.of(calibration)
            return MonitorOut.of(services, calibration, report, drift, None).note or ""

        assert "not folded" not in await note()
        await services.retention.run()
        assert logs.draw_id(3) in await note()


async def test_a_set_without_folds_has_none() -> None:
    async with client_of() as client:
        assert (await client.get(ROUTE)).json() == {
            "name": "default",
            "keep_days": None,
            "until": None,
            "held": None,
            "folded": [],
        }
