"""GET /audits/texts: open audits with the texts that the service keeps, for blind labelling."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.keys import Keys
from app.stores.memory import MemoryStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import calibrated, comparison, problem
from tests.unit.api.test_audits import drawn, send


async def texts(client: httpx.AsyncClient, query: str = "", headers: Any = None) -> Any:
    response = await client.get(f"/audits/texts{query}", headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def test_open_audits_are_listed_with_texts_and_nothing_of_the_judge() -> None:
    async with client_of(audit_rate=1.0, audit_texts=True) as client:
        await calibrated(client)
        one, two = await drawn(client, range(2))
        found = await texts(client)
        assert (found["keeps_texts"], found["next_after"]) == (True, None)
        first, second = found["audits"]
        assert first == {
            "id": one,
            "calibration": "default",
            "drawn_at": first["drawn_at"],
            "texts": {
                "question": "Traffic 0?",
                "response_a": "quality=3.9",
                "response_b": "quality=0",
            },
        }
        assert second["id"] == two
        await send(client, {one: "A"})
        assert [each["id"] for each in (await texts(client))["audits"]] == [two]


async def test_conversations_keep_their_turns() -> None:
    turns = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "quality=1"},
        {"role": "user", "content": "2?"},
    ]
    fields = {"question": turns, "response_a": ["quality=3", "x"], "response_b": ["quality=0", "y"]}
    async with client_of(audit_rate=1.0, audit_texts=True) as client:
        await calibrated(client)
        (await client.post("/judge", json=fields)).raise_for_status()
        (only,) = (await texts(client))["audits"]
        assert only["texts"] == fields


async def test_pages_end_and_a_draw_of_before_the_setting_has_no_texts() -> None:
    store = MemoryStore()
    async with client_of(store=store, audit_rate=1.0) as client:
        await calibrated(client)
        (old,) = await drawn(client, [100])
        found = await texts(client)
        assert [(each["id"], each["texts"]) for each in found["audits"]] == [(old, None)]
        assert found["keeps_texts"] is False
    async with client_of(store=store, audit_rate=1.0, audit_texts=True) as client:
        ids = [old, *await drawn(client, range(25))]
        listed: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = await texts(client, f"?after={after}")
            assert len(page["audits"]) <= 20
            listed += page["audits"]
            after = page["next_after"]
        assert [each["id"] for each in listed] == ids
        assert [each["texts"] is None for each in listed] == [True] + [False] * 25
        assert (await texts(client, "?calibration=other"))["audits"] == []


@pytest.mark.parametrize("query", ["limit=21", "limit=0", "after=-1", "after=x", "calibration="])
async def test_a_query_out_of_range_is_refused(query: str) -> None:
    async with client_of() as client:
        problem(await client.get(f"/audits/texts?{query}"), "invalid_request")


async def test_only_a_key_with_the_role_and_the_set_reads_texts(tmp_path: Path) -> None:
    entries = (
        entry("all", ["judge", "calibrate"]),
        entry("judge", ["judge"]),
        entry("admin", ["admin"]),
        entry("other", ["calibrate"], ["other"]),
    )
    keys = Keys(write_keys(tmp_path / "keys.json", *entries))
    async with client_of(keys=keys, audit_rate=1.0, audit_texts=True) as client:
        client.headers.update(header_of("all"))
        await calibrated(client)
        question = {"question": "a secret question"}
        (await client.post("/judge", json=comparison(**question))).raise_for_status()
        assert len((await texts(client))["audits"]) == 1
        for name in ("judge", "admin"):
            refused = await client.get("/audits/texts", headers=header_of(name))
            assert "calibrate" in problem(refused, "forbidden")["detail"]
        assert (await texts(client, headers=header_of("other")))["audits"] == []
        limited = await client.get("/audits/texts?calibration=default", headers=header_of("other"))
        problem(limited, "forbidden")
        # No other route shows the texts.
        for path in ("/audits", "/calibrations/default/audit-trail", "/info"):
            assert "secret" not in (await client.get(path)).text
