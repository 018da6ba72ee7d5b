"""Entries of a trail are shown; those that nobody wrote are left out."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.core.errors import CalibrationNotFoundError
from app.judging.services import Services
from app.ports import Entry, Head
from app.sets.calibrator import Calibrator
from app.sets.change import Change, readable_changes
from app.sets.codec import thresholds_of
from tests.serving import labelled, services_of
from tests.unit.sets.trails import batch, trail

NOON = datetime(2026, 11, 21, 12, 0, 5, 999_999, tzinfo=UTC)


async def test_a_batch_is_recorded_with_who_when_what_and_the_thresholds() -> None:
    async with services_of() as services:
        calibrator = Calibrator(
            services.scorer, services.store, services.calibrations, now=lambda: NOON
        )
        first = [labelled(0.1 * i, "A", number=i) for i in range(1, 41)]
        one = await calibrator.add("default", first, by="ci")
        second = [
            labelled(0.1, "B", number=1),
            *batch(50, 51),
            labelled(0.2, "tie", number=2),
            labelled(1.0, "tie", number=99),
        ]
        two = await calibrator.add("default", second, by="mallory")
        newest, oldest = await trail(services)
    assert oldest == Change(
        version=1,
        write_id=one.calibration.write_id,
        action="calibrate",
        at="2026-11-21T12:00:05Z",
        by="ci",
        added=40,
        updated=0,
        ties=0,
        removed=0,
        failed=0,
        n=40,
        min_label_mass=0.0,
        judge="scripted",
        fingerprint=services.identity.fingerprint,
        rolled_back_to=None,
        thresholds_after=thresholds_of(one.calibration),
        unlabelled=0,
    )
    assert (newest.version, newest.by) == (2, "mallory")
    assert (two.added, two.updated, two.ties, two.removed) == (2, 1, 2, 0)
    assert (newest.added, newest.updated, newest.ties, newest.removed) == (2, 1, 2, 0)
    assert (newest.failed, newest.n) == (0, 43)
    assert newest.thresholds_after is not None
    for row in two.calibration.standard_rows:
        found = newest.thresholds_after[f"{row.guarantee}:{row.alpha:.2f}"]
        assert found == (row.threshold if row.feasible else None)
    assert None in newest.thresholds_after.values()


async def test_a_deletion_is_recorded_and_the_numbers_go_on() -> None:
    async with services_of() as services:
        await services.calibrator.add("default", batch(1, 2))
        await services.calibrator.delete("default", by="admin")
        deletion, _ = await trail(services)
        assert (deletion.version, deletion.action, deletion.by) == (2, "delete", "admin")
        assert (deletion.removed, deletion.n, deletion.write_id) == (2, 0, None)
        assert deletion.thresholds_after is None
        again = await services.calibrator.add("default", batch(3))
        assert (again.calibration.version, again.calibration.n) == (3, 1)
        assert [change.version for change in await trail(services)] == [3, 2, 1]
        with pytest.raises(CalibrationNotFoundError):
            await services.calibrator.delete("other")


async def test_versions_are_listed_page_by_page_and_for_deleted_sets() -> None:
    async with services_of() as services:
        for number in range(1, 6):
            await services.calibrator.add("default", batch(number))
        await services.calibrator.delete("default")
        versions = services.calibrator.versions

        async def page(before: int | None, limit: int) -> list[int]:
            return [r.version for r in await versions("default", before=before, limit=limit)]

        assert await page(None, 2) == [6, 5]
        assert await page(5, 3) == [4, 3, 2]
        assert await page(1, 3) == []
        with pytest.raises(CalibrationNotFoundError):
            await versions("never", before=None, limit=1)


async def newest_record(services: Services) -> dict[str, Any]:
    await services.calibrator.add("default", batch(1))
    (entry,) = await services.store.trail("default", before=None, limit=1)
    found: dict[str, Any] = json.loads(entry.record)
    return found


@pytest.mark.parametrize(
    "record",
    ["", "{}", "[]", '{"version": "1"}', '{"added": 1.5}', '{"by": "\\ud800"}', '{"judge": ["a"]}']
    + [f'{{"thresholds_after": {{"marginal:0.10": {value}}}}}' for value in ('"x"', "NaN")],
)
async def test_an_entry_that_was_never_written_does_not_hide_the_others(
    record: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with services_of() as services:
        written = json.dumps(await newest_record(services))
    if ":" in record:
        record = f"{written[:-1]},{record[1:]}"
    entries = [Entry(Head("w", number), text) for number, text in ((2, record), (1, written))]
    assert [change.n for change in readable_changes("default", entries)] == [1]
    assert "entry 2 of the trail of calibration 'default'" in caplog.text


async def test_a_record_of_a_later_release_is_shown() -> None:
    async with services_of() as services:
        record = await newest_record(services)
    text = json.dumps({**record, "action": "merge", "new": [1]})
    (change,) = readable_changes("default", [Entry(Head("w", 1), text)])
    assert (change.action, change.n) == ("merge", 1)


async def test_a_record_has_the_minimum_label_mass_of_its_thresholds() -> None:
    async with services_of(min_label_mass=0.5) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.delete("default")
        assert [change.min_label_mass for change in await trail(services)] == [0.5, 0.5]
        assert (await services.calibrator.rollback("default", 1)).calibration.min_label_mass == 0.5
