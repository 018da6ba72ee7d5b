"""Entries of a trail: readable ones are shown, and corrupt ones do not hide the others."""

import json
from typing import Any

import pytest

from app.core.errors import StoreCorruptError
from app.service.calibration.trail import Change
from app.service.services import Services
from app.stores.memory import MemoryStore
from tests.serving import services_of
from tests.unit.service.calibration.test_undo import batch, read, trail

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("record", ["", "{}", "[]", "3", "[" * 100_000])
async def test_a_record_that_was_never_written_is_corrupt(record: str) -> None:
    with pytest.raises(StoreCorruptError, match="'default'"):
        Change.parse("default", record)


async def newest_record(services: Services) -> dict[str, Any]:
    await services.calibrator.add("default", batch(1))
    (text,) = await services.store.records("default", before=None, limit=1)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    "changes",
    [
        '{"version": "1"}',
        '{"version": true}',
        '{"version": -1}',
        '{"added": 1.5}',
        '{"n": null}',
        f'{{"n": 1{"0" * 400}}}',
        '{"action": null}',
        '{"by": "\\ud800"}',
        '{"judge": ["a"]}',
        '{"label_noise": 0.7}',
        '{"label_noise": NaN}',
        '{"min_label_mass": Infinity}',
        '{"thresholds_after": [1]}',
        '{"thresholds_after": {"marginal:0.10": "x"}}',
        '{"thresholds_after": {"marginal:0.10": NaN}}',
        f'{{"thresholds_after": {{"marginal:0.10": 1{"0" * 400}}}}}',
    ],
    ids=lambda text: text[:48],
)
async def test_a_record_with_an_impossible_value_is_corrupt(changes: str) -> None:
    async with services_of() as services:
        record = {**await newest_record(services), **json.loads(changes)}
    with pytest.raises(StoreCorruptError, match="'default'"):
        Change.parse("default", json.dumps(record))


async def test_a_record_of_another_release_is_shown() -> None:
    async with services_of() as services:
        record = await newest_record(services)
    del record["min_label_mass"]
    found = Change.parse("default", json.dumps({**record, "action": "merge", "new": [1]}))
    assert (found.action, found.min_label_mass, found.n) == ("merge", 0.0, 1)


async def test_a_corrupt_entry_does_not_hide_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        for number in range(1, 10):
            await services.calibrator.add("default", batch(number))
        stored = store._trails["default"]
        for index in (1, 2, 3, 7, 8):
            stored[index] = stored[index]._replace(record="{}")
        pages: list[list[int]] = [[99]]
        while pages[-1]:
            page = await services.calibrator.versions("default", before=pages[-1][-1], limit=2)
            pages.append([change.version for change in page])
        assert pages[1:] == [[7, 6], [5, 1], []]
    assert "did not write; it is left out" in caplog.text


async def test_a_record_has_the_minimum_label_mass_of_its_thresholds() -> None:
    async with services_of(min_label_mass=0.5) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.delete("default")
        assert [change.min_label_mass for change in await trail(services)] == [0.5, 0.5]
        assert (await services.calibrator.rollback("default", 1)).min_label_mass == 0.5
        assert (await read(services.store)).meta["min_label_mass"] == "0.5"
