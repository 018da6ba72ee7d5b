"""Tests of what imports, replacements, rollbacks and deletions say before they happen."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.core.errors import StoreCorruptError
from app.ports import AuditState
from app.stores.memory import MemoryStore
from tests.serving import client_of, services_of
from tests.serving import labelled as labeled_comparison
from tests.unit.api.problems import calibrated, comparison, examples, problem
from tests.unit.api.test_absorb import alarmed

Json = dict[str, Any]
Change = Callable[[httpx.AsyncClient, Json], Awaitable[httpx.Response]]
SET = "/calibrations/default"


async def used(client: httpx.AsyncClient, alpha: float = 0.1) -> None:
    """Brings an alpha into use, without a draw."""
    response = await client.post("/judge", json=comparison(alpha=alpha))
    assert response.status_code == 200, response.text


async def state(client: httpx.AsyncClient) -> tuple[Any, ...]:
    """All that a change would change: the set, its examples, its trail, its audits and alarms."""
    paths = (SET, f"{SET}/examples", f"{SET}/versions", f"{SET}/monitor", "/audits")
    answers = [await client.get(path) for path in paths]
    return tuple(answer.json() for answer in answers)


async def scored(client: httpx.AsyncClient, n: int, **fields: Any) -> Json:
    """The body of an import of n examples with other questions than those of the set."""
    rows = [{**row, "question": f"New {row['question']}"} for row in examples(n)]
    answer = (await client.post("/calibrate/scores", json={"examples": rows})).json()
    return {"fingerprint": answer["fingerprint"], "examples": answer["scores"], **fields}


async def import_(client: httpx.AsyncClient, asked: Json) -> httpx.Response:
    return await client.post(f"{SET}/examples", json={**await scored(client, 30), **asked})


async def calibrate(client: httpx.AsyncClient, asked: Json) -> httpx.Response:
    rows = [{**row, "question": f"New {row['question']}"} for row in examples(30)]
    return await client.post("/calibrate", json={"examples": rows, **asked})


async def roll_back(client: httpx.AsyncClient, asked: Json) -> httpx.Response:
    return await client.post(f"{SET}/rollback", json={"version": 1, **asked})


# Change -> numbers of examples after it of a set with 60 examples in version 1 and 80 in version 2,
# and of added, updated and removed ones.
CHANGES: dict[str, tuple[Change, Json, tuple[int, int, int, int]]] = {
    "import": (import_, {}, (110, 30, 0, 0)),
    "import that replaces": (import_, {"replace": True}, (30, 30, 0, 80)),
    "calibrate": (calibrate, {}, (110, 30, 0, 0)),
    "calibrate that replaces": (calibrate, {"replace": True}, (30, 30, 0, 80)),
    "rollback": (roll_back, {}, (60, 0, 0, 20)),
}


async def in_two_versions(client: httpx.AsyncClient) -> None:
    await calibrated(client)
    rows = [{**row, "question": f"Second {row['question']}"} for row in examples(20, right=False)]
    (await client.post("/calibrate", json={"examples": rows})).raise_for_status()


def row_in_use(shown: Json) -> Any:
    (row,) = (
        row for row in shown["thresholds"] if (row["guarantee"], row["alpha"]) == ("marginal", 0.1)
    )
    return row


@pytest.mark.parametrize("name", CHANGES)
async def test_a_dry_run_changes_nothing_and_says_what_the_change_then_does(name: str) -> None:
    change, asked, counts = CHANGES[name]
    async with client_of(audit_rate=1.0) as client:
        await in_two_versions(client)
        await used(client)
        before = await state(client)
        answer = await change(client, {**asked, "dry_run": True})
        assert answer.status_code == 200, answer.text
        would = answer.json()
        assert await state(client) == before
        done = (await change(client, asked)).json()
        now = (await client.get(SET)).json()
    assert [would[field] for field in ("n", "added", "updated", "removed")] == list(counts)
    (effect,) = would["effects"]
    assert (effect["before"], effect["after"]) == (row_in_use(before[0]), row_in_use(now))
    assert would["note"].startswith(f"80 examples become {counts[0]} ({counts[1]} added, 0 updated")
    assert (would.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert (would.pop("version"), done.pop("version")) == (2, 3)
    if name in ("import", "calibrate"):
        # Nobody has looked at examples that are only added.
        assert [done.pop(each) for each in ("effects", "ends_alarms", "note")] == [None] * 3
        for each in ("effects", "ends_alarms", "note"):
            would.pop(each)
    assert would == done
    assert {**would, "version": 3}.items() >= {
        field: now[field] for field in ("n", "accuracy", "thresholds")
    }.items()


@pytest.mark.parametrize("change", [import_, calibrate])
async def test_a_replacement_that_ends_all_verdicts_is_refused_unless_it_is_asked_for(
    change: Change,
) -> None:
    async with client_of() as client:
        await calibrated(client)
        await used(client, 0.02)
        before = await state(client)
        asked = {"replace": True}
        would = (await change(client, {**asked, "dry_run": True})).json()
        # Without an error among k labels, 1 / k must be at most 0.02.
        (effect,) = would["effects"]
        assert (effect["becomes_infeasible"], effect["more_labels"]) == (True, 20)
        refused = problem(await change(client, asked), "becomes_infeasible")
        assert "alpha 0.02 (marginal): it needs at least 20 more labels" in refused["detail"]
        assert await state(client) == before
        done = (await change(client, {**asked, "even_if_infeasible": True})).json()
        assert (done["version"], done["n"]) == (2, 30)


async def test_examples_that_are_only_added_and_rollbacks_are_never_refused() -> None:
    async with client_of() as client:
        await calibrated(client, 30)
        await calibrated(client, 60)
        await used(client, 0.02)
        would = (await roll_back(client, {"dry_run": True})).json()
        assert would["effects"][0]["becomes_infeasible"]
        assert "gets no more verdicts" in would["note"]
        done = (await roll_back(client, {})).json()
        assert (done["n"], done["effects"]) == (30, would["effects"])
    async with client_of() as client:
        await calibrated(client)
        await used(client, 0.02)
        wrong = [{**row, "question": f"W {row['question']}"} for row in examples(60, right=False)]
        replaced = await client.post("/calibrate", json={"examples": wrong, "replace": True})
        detail = problem(replaced, "becomes_infeasible")["detail"]
        assert "(marginal): more labels are not known to help; " in detail
        added = await client.post("/calibrate", json={"examples": wrong})
        assert (added.status_code, added.json()["n"]) == (200, 120)


@pytest.mark.parametrize("change", [import_, calibrate])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_replacement_that_would_leave_no_example_is_refused(
    change: Change, dry_run: bool
) -> None:
    async with client_of() as client:
        await calibrated(client)
        rows = [{**row, "label": "tie"} for row in examples(3)]
        ties = {"examples": rows}
        if change is import_:
            scores = (await client.post("/calibrate/scores", json=ties)).json()["scores"]
            ties = {"examples": scores}
        answer = await change(client, {**ties, "replace": True, "dry_run": dry_run})
        assert problem(answer, "invalid_request")["errors"][0]["field"] == "examples"
        assert (await client.get(SET)).json()["n"] == 60


async def test_a_set_that_is_absent_has_no_effects_to_show() -> None:
    async with client_of() as client:
        problem(await roll_back(client, {"dry_run": True}), "calibration_not_found")
        problem(await client.delete(f"{SET}?dry_run=true"), "calibration_not_found")
        for change in (import_, calibrate):
            would = (await change(client, {"dry_run": True})).json()
            assert (would["version"], would["n"], would["effects"]) == (0, 30, [])
            assert (await client.get(SET)).status_code == 404
        await calibrated(client)
        problem(await roll_back(client, {"version": 9, "dry_run": True}), "version_not_found")


async def test_alarms_that_a_change_ends_are_named_before() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        for change, asked in ((import_, {"replace": True}), (calibrate, {"replace": True})):
            would = (await change(client, {**asked, "dry_run": True})).json()
            (ended,) = would["ends_alarms"]
            assert (ended["alpha"], ended["guarantee"]) == (0.1, "marginal")
        # Half of the examples must be newer than the alarm.
        assert (await import_(client, {"dry_run": True})).json()["ends_alarms"] == []
        monitor = (await client.get(f"{SET}/monitor")).json()
        assert [each["rang_at"] for each in monitor["criteria"]] == [ended["rang_at"]]
        done = (await import_(client, {"replace": True})).json()
        assert done["ends_alarms"] == [ended]
        trail = (await client.get(f"{SET}/audit-trail")).json()["entries"]
        assert trail[0]["event"] == "alarm_ended"
        # The first version has no newer example, so it ends nothing.
        assert (await roll_back(client, {})).json()["ends_alarms"] == []


async def test_a_deletion_says_what_it_ends_and_what_stays() -> None:
    async with client_of(audit_rate=1.0) as client:
        await alarmed(client)
        await used(client, 0.001)
        before = await state(client)
        answer = await client.delete(f"{SET}?dry_run=true")
        assert answer.status_code == 200, answer.text
        would = answer.json()
        assert await state(client) == before
        rows = {row["alpha"]: row["feasible"] for row in would.pop("in_use")}
        assert rows == {0.1: True, 0.001: False}
        (alarm,) = would.pop("alarms")
        assert alarm["alpha"] == 0.1
        assert would.pop("note") == (
            "alpha 0.1 (marginal) has verdicts, and will get 404 calibration_not_found; its trail "
            "stays, so a rollback to version 1 restores its 60 examples; audits (31), active "
            "alarms (1) and keys that are limited to it stay"
        )
        assert would == {"name": "default", "version": 1, "n": 60, "audits": 31}
        # All of that is so.
        assert (await client.delete(SET)).status_code == 204
        problem(await client.post("/judge", json=comparison()), "calibration_not_found")
        assert len((await client.get("/audits?calibration=default")).json()["audits"]) == 31
        assert (await roll_back(client, {})).json()["n"] == 60
        monitor = (await client.get(f"{SET}/monitor")).json()
        assert [each["alarm"] for each in monitor["criteria"] if each["alpha"] == 0.1] == [True]


class InterruptedStore(MemoryStore):
    """A store in which another writer comes first, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[Any]] | None = None

    async def write(self, *args: Any, **kwargs: Any) -> bool:
        first, self.before = self.before, None
        if first is not None:
            await first()
        return await super().write(*args, **kwargs)


async def test_a_replacement_is_checked_on_the_version_that_it_replaces() -> None:
    store = InterruptedStore()
    async with client_of(store=store) as client:
        await calibrated(client, 5)
        await used(client)
        body = await scored(client, 4, replace=True)
        would = await client.post(f"{SET}/examples", json={**body, "dry_run": True})
        # Nothing is lost: alpha 0.1 is infeasible already, with five labels.
        assert [each["becomes_infeasible"] for each in would.json()["effects"]] == [False]
        store.before = lambda: calibrated(client)
        problem(await client.post(f"{SET}/examples", json=body), "becomes_infeasible")
        assert (await client.get(SET)).json()["n"] == 65


async def test_a_rollback_needs_no_audits() -> None:
    class Damaged(MemoryStore):
        async def audit_states(self) -> dict[str, AuditState]:
            raise StoreCorruptError("the audits are not ours")

    store = MemoryStore()
    async with services_of(store=store) as services:
        for number in range(2):
            await services.calibrator.add("default", [labeled_comparison(1.0, "A", number=number)])
        store.__class__ = Damaged
        would = await services.changes.rollback("default", 1, by="ana", dry_run=True)
        done = await services.changes.rollback("default", 1, by="ana")
    assert (would.removed, done.removed, done.calibration.n) == (1, 1, 1)


async def test_a_set_that_cannot_be_read_can_be_deleted_after_a_look() -> None:
    class Damaged(MemoryStore):
        async def read(self, name: str, number: int | None = None) -> bytes | None:
            raise StoreCorruptError("this is not a set")

    store = Damaged()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", [labeled_comparison(1.0, "A", number=1)])
    # This service has no set in memory.
    async with client_of(store=store) as client:
        would = (await client.delete(f"{SET}?dry_run=true")).json()
        assert (would["version"], would["n"], would["in_use"]) == (None, None, [])
        assert "a rollback cannot restore this version" in would["note"]
        assert (await client.delete(SET)).status_code == 204
