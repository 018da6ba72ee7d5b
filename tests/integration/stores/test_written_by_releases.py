"""Stored data stay the same: this version writes what ad2bbf3 wrote, and reads what fcaab06 wrote.

`written/by_COMMIT.json` holds the tables and the keys that `change_sets` made at that commit. Since
c76e814 meta and undos have a digest, which fcaab06 did not write yet.
"""

import itertools
import json
import re
import sqlite3
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.core.comparison import Comparison, Label, LabelledComparison
from app.engines.scripted import ScriptedEngine
from app.ports import CalibrationStore, LabelLogits, Prompt
from app.service.calibration.batch import JudgedExample
from app.service.calibration.calibrator import Calibrator
from app.service.judging.judge import Judge
from app.service.judging.prompts import PromptTemplate
from app.stores.redis import RedisStore
from app.stores.sqlite import SqliteStore
from app.stores.sqlite_file import APPLICATION_ID
from app.telemetry import Telemetry
from tests.redis_server import RedisServer
from tests.serving import calibrations_of

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).with_name("written")
NOON = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)
TABLES = ("calibration", "meta", "example", "threshold", "revision")
_FLOAT = re.compile(r"-?\d+\.\d{10,}")


def exact_logits(prompt: Prompt) -> LabelLogits:
    """Logits whose difference is exact and whose label mass is 1, on every machine."""
    a, b = (float(mark) for mark in re.findall(r"quality=(-?\d+\.\d+)", prompt.user)[-2:])
    return LabelLogits(0.0, b - a) if a >= b else LabelLogits(a - b, 0.0)


def example(number: int, gap: float, label: Label) -> LabelledComparison:
    comparison = Comparison.of(f"Question {number}?", f"quality={gap:.2f}", "quality=0.00")
    return LabelledComparison(comparison, label)


def calibrator_on(store: CalibrationStore) -> Calibrator:
    """A calibrator whose judge has the fingerprint of the stored sets."""
    calibrations = calibrations_of(store)
    telemetry, engine = Telemetry.on_own_registry(), ScriptedEngine(exact_logits)
    judge = Judge(
        *(engine, PromptTemplate(), calibrations, telemetry), name="demo", fingerprint="f" * 64
    )
    return Calibrator(judge, store, calibrations, now=lambda: NOON)


async def add(
    calibrator: Calibrator,
    name: str,
    examples: list[LabelledComparison],
    *,
    label_noise: float | None = None,
    by: str = "service",
    unread: int = 0,
) -> None:
    """Adds examples without the digests of their questions, which no earlier release stored."""
    batch = await calibrator.judged(name, examples, label_noise=label_noise, unread=unread)
    judged = [
        each._replace(score=each.score._replace(question=None))
        if isinstance(each, JudgedExample) and each.score is not None
        else each
        for each in batch.examples
    ]
    await calibrator.put(name, replace(batch, examples=judged), by=by)


async def change_sets(store: CalibrationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every kind of change."""
    numbers = itertools.count(1)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
    await store.open()
    calibrator = calibrator_on(store)
    first = [example(i, 0.25 * i, "A" if i > 2 else "B") for i in range(1, 31)]
    await add(calibrator, "default", first, by="ci")
    relabelled, untied = example(1, 0.25, "A"), example(2, 0.5, "tie")
    second = [relabelled, untied, example(40, -1.25, "B"), example(99, 1.0, "tie")]
    await add(calibrator, "default", second, label_noise=0.05, by="ana", unread=2)
    await calibrator.rollback("default", 1, by="admin")
    await calibrator.delete("default", by="admin")
    await add(calibrator, "default", [example(7, 1.75, "A")], by="ci")
    await add(calibrator, "other", [example(8, -0.5, "B")])
    await calibrator.delete("other")
    await store.close()


def written_by(commit: str) -> Any:
    return json.loads((FOLDER / f"by_{commit}.json").read_text())


def rounded(content: Any) -> Any:
    """The content with 12 digits of each float: the last bits of a threshold depend on the CPU."""
    return json.loads(_FLOAT.sub(lambda found: f"{float(found[0]):.12g}", json.dumps(content)))


def dumped_sqlite(path: Path) -> Any:
    connection = sqlite3.connect(path)
    schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
    found = {
        **{
            table: sorted(map(list, connection.execute(f"SELECT * FROM {table}")))
            for table in TABLES
        },
        "schema": sorted(sql for (sql,) in connection.execute(schema)),
    }
    connection.close()
    return found


def loaded_sqlite(path: Path, content: Any) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    # Tables before triggers.
    for statement in sorted(content["schema"], key=lambda sql: not sql.startswith("CREATE TABLE")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 2")
    for table in TABLES:
        for row in content[table]:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    connection.close()


def dumped_redis(server: RedisServer) -> Any:
    found: dict[str, Any] = {}
    keys: Any = server.command("KEYS", "*")
    for key in sorted(keys):
        kind = server.command("TYPE", key)
        if kind == "hash":
            found[key] = server.command("HGETALL", key)
        elif kind == "set":
            members: Any = server.command("SMEMBERS", key)
            found[key] = sorted(members)
        else:
            entries: Any = server.command("XRANGE", key, "-", "+")
            found[key] = [list(entry) for entry in entries]
    return found


def loaded_redis(server: RedisServer, content: Any) -> None:
    server.command("FLUSHALL")
    for key, value in content.items():
        if isinstance(value, dict):
            server.command("HSET", key, *itertools.chain(*value.items()))
        elif isinstance(value[0], str):
            server.command("SADD", key, *value)
        else:
            for number, fields in value:
                server.command("XADD", key, number, *itertools.chain(*fields.items()))


async def test_sqlite_holds_what_the_commit_before_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_sets(SqliteStore(tmp_path / "sets.db"), monkeypatch)
    found, before = dumped_sqlite(tmp_path / "sets.db"), written_by("ad2bbf3")["sqlite"]
    # Schema 3 has more tables, and the same ones for the sets.
    assert set(found.pop("schema")) >= set(before.pop("schema"))
    assert rounded(found) == rounded(before)


async def test_redis_holds_what_the_commit_before_wrote(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.command("FLUSHALL")
    await change_sets(RedisStore(redis_server.url), monkeypatch)
    assert rounded(dumped_redis(redis_server)) == rounded(written_by("ad2bbf3")["redis"])


@pytest.mark.parametrize("commit", ["fcaab06", "ad2bbf3"])
@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
async def test_every_version_that_an_older_commit_wrote_is_read_and_restored(
    scheme: str, commit: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    content = written_by(commit)[scheme]
    store: CalibrationStore = SqliteStore(tmp_path / "sets.db")
    if scheme == "sqlite":
        loaded_sqlite(tmp_path / "sets.db", content)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        loaded_redis(server, content)
        store = RedisStore(server.url)
    await store.open()
    calibrator = calibrator_on(store)
    trail = await calibrator.versions("default", before=None, limit=9)
    assert [(change.version, change.action, change.by) for change in trail] == [
        (5, "calibrate", "ci"),
        (4, "delete", "admin"),
        (3, "rollback", "admin"),
        (2, "calibrate", "ana"),
        (1, "calibrate", "ci"),
    ]
    counts = [(each.added, each.updated, each.ties, each.removed, each.failed) for each in trail]
    assert counts == [
        (1, 0, 0, 0, 0),
        (0, 0, 0, 30, 0),
        (1, 1, 0, 1, 0),
        (1, 1, 2, 1, 2),
        (30, 0, 0, 0, 0),
    ]
    for version, n, label_noise in ((3, 30, 0.0), (2, 30, 0.05), (5, 1, 0.0), (1, 30, 0.0)):
        restored = await calibrator.rollback("default", version)
        assert (restored.n, restored.label_noise) == (n, label_noise)
    assert (await calibrator.rollback("other", 1)).n == 1
    await store.close()
