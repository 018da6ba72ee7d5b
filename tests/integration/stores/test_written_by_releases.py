"""Sets, trails, audits and exports that earlier releases wrote are read and used.

`written_by_releases/COMMIT` holds what `record.py` made with the code of that commit, and what the
service of that commit said about it.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes.server import Server
from tests.integration.stores.written_by_releases.record import (
    JUDGED_LAST,
    SETS,
    comparisons,
    post,
    state_of,
)
from tests.redis_server import RedisServer

RECORDED = Path(__file__).with_name("written_by_releases").glob("*/answers.json")
FOLDERS = sorted(answers.parent for answers in RECORDED)
# With the default of two weeks, the open draws of the fixture would be expired.
TEN_YEARS_S = str(10 * 365 * 86400)


def without(answer: Any, *fields: str) -> Any:
    """The answer without some fields, with 9 digits of each float; the last bits vary by CPU."""
    if isinstance(answer, dict):
        return {k: without(v, *fields) for k, v in answer.items() if k not in fields}
    if isinstance(answer, list):
        return [without(item, *fields) for item in answer]
    return float(f"{answer:.9g}") if isinstance(answer, float) else answer


def says_again(now: Any, before: Any) -> bool:
    """Whether an answer says what the answer before said; it may have more fields."""
    if isinstance(before, dict):
        return all(field in now and says_again(now[field], before[field]) for field in before)
    if isinstance(before, list):
        return len(now) == len(before) and all(map(says_again, now, before))
    return bool(now == before)


def load_redis(server: RedisServer, keys: dict[str, Any]) -> None:
    for key, value in keys.items():
        if isinstance(value, str):
            server.command("SET", key, value)
        elif isinstance(value, dict):
            server.command("HSET", key, *chain(*value.items()))
        elif isinstance(value[0], str):
            server.command("SADD", key, *value)
        else:
            for number, fields in value:
                server.command("XADD", key, number, *chain(*fields.items()))


@contextmanager
def running(folder: Path, store_url: str) -> Iterator[Server]:
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": store_url,
        "SCOPE_AUDIT_RATE": "0.3",
        "SCOPE_AUDIT_EXPIRES_S": TEN_YEARS_S,
    }
    with Server(folder, settings) as server:
        yield server


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(params=["sqlite", "redis"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(
    release: Path, scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """A service of this code on the store that the release wrote."""
    if scheme == "sqlite":
        shutil.copyfile(release / "store.sqlite", tmp_path / "store.db")
        url = f"sqlite:///{tmp_path}/store.db"
    else:
        redis: RedisServer = request.getfixturevalue("redis_server")
        load_redis(redis, json.loads((release / "redis.json").read_text()))
        url = redis.url
    with running(tmp_path, url) as server:
        yield server


@pytest.fixture
def recorded(release: Path, scheme: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((release / "answers.json").read_text())[scheme]
    return said


def test_sets_trails_audits_and_figures_are_those_that_the_release_showed(
    server: Server, recorded: dict[str, Any]
) -> None:
    client = server.client
    for path, before in recorded["answers"].items():
        now = client.get(path).raise_for_status().json()
        assert says_again(without(now), without(before, "expires_at", "left_out")), path
    body = {"comparisons": comparisons(JUDGED_LAST), "alpha": 0.25}
    judged = post(client, "/judge/batch", **body)["results"]
    assert says_again(without(judged, "audit"), without(recorded["judged"], "audit"))
    # A comparison that is drawn again keeps its id, and its label if it has one.
    known = {each["audit"]["id"] for each in recorded["judged"] if each["audit"]}
    again = [each["audit"]["id"] for each in judged if each["audit"]]
    assert known & set(again)
    before = recorded["answers"]["/audits?limit=1000"]["audits"]
    audits = client.get("/audits?limit=1000").json()["audits"]
    assert [each["id"] for each in audits[: len(before)]] == [each["id"] for each in before]
    assert len({each["id"] for each in audits}) == len(audits) < len(before) + len(again)
    labels = [{"id": each["id"], "label": "A"} for each in audits if each["status"] == "open"]
    assert labels
    assert post(client, "/audits/labels", labels=labels)["labelled"] == len(labels)


def test_every_version_of_the_release_is_restored_and_its_sets_go_on(
    server: Server, recorded: dict[str, Any]
) -> None:
    client = server.client
    for name, states in recorded["states"].items():
        for version, state in reversed(states.items()):
            post(client, f"/calibrations/{name}/rollback", version=int(version))
            assert state_of(client, name) == state, (name, version)
    added = post(client, "/calibrate", examples=[{**comparisons(range(1))[0], "label": "A"}])
    (newest, *_) = client.get("/calibrations/default/versions").json()["versions"]
    # Restoring the current version changes nothing.
    assert newest["version"] == added["version"] == 2 * len(recorded["states"]["default"])
    assert client.delete("/calibrations/default").is_success


# The exports are those of the service on Redis.
@pytest.mark.parametrize("scheme", ["redis"])
def test_an_exported_set_is_imported(
    release: Path, recorded: dict[str, Any], tmp_path: Path
) -> None:
    with running(tmp_path, "memory://") as server:
        program = str(Path(sys.executable).with_name("scope-judge"))
        url = f"http://127.0.0.1:{server.port}"
        for name in SETS:
            words = ["sets", "import", str(release / f"{name}.jsonl"), "--yes", "--url", url]
            subprocess.run([program, *words], check=True)
            states = list(recorded["states"][name].values())
            assert state_of(server.client, name) == states[-1]


@pytest.mark.parametrize("scheme", ["sqlite"])
def test_a_file_of_the_release_has_the_schema_of_a_new_file(
    release: Path, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    with running(tmp_path / "new", f"sqlite:///{tmp_path}/new.db"):
        pass
    schemas = []
    for file in ("store.db", "new.db"):
        connection = sqlite3.connect(tmp_path / file)
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql"
        version = connection.execute("PRAGMA user_version").fetchone()
        schemas.append((version, connection.execute(query).fetchall()))
        connection.close()
    assert schemas[0] == schemas[1]
