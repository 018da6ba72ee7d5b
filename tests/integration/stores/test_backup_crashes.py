"""A restore that is killed leaves the store as it was, and can be run again."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.service.backup.lines import parts_in
from app.service.backup.walk import fill
from tests.integration.stores.backends import state, store_at, write
from tests.integration.stores.test_backup_contract import backup_of, content, fill_by_use
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer


def run(address: str, file: Path, part: int, *, replace: bool) -> int:
    """Runs the program, and returns its exit status."""
    program = [sys.executable, "-m", "tests.integration.stores.restoring"]
    arguments = [address, str(file), str(part), str(replace)]
    return subprocess.run([*program, *arguments], timeout=PATIENCE_S, check=False).returncode


@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
@pytest.mark.parametrize("replace", [False, True])
async def test_a_killed_restore_leaves_the_store_as_it_was_and_can_be_repeated(
    address: str, replace: bool, tmp_path: Path
) -> None:
    source = store_at("memory://")
    await fill_by_use(source)
    file = tmp_path / "backup.jsonl"
    backup = await backup_of(source)
    file.write_bytes(backup.getvalue())
    parts = len(backup.getvalue().splitlines()) - 2
    # A service that runs all the time.
    service = store_at(address)
    await service.open()
    if replace:
        await write(service, state(5), expected=None, name="own")
        await service.append_audits(["own"] * 10)
    before = await content(service)
    for part in (1, parts // 2, parts):
        assert run(address, file, part, replace=replace) == -signal.SIGKILL
        assert await content(service) == before
    assert run(address, file, 0, replace=replace) == 0
    assert await content(service) == await content(source)
    await service.close()


@pytest.mark.parametrize(
    "refuse", [("CONFIG", "SET", "maxmemory", "4mb"), ("REPLICAOF", "127.0.0.1", "1")]
)
async def test_a_redis_that_is_full_or_read_only_is_backed_up_and_not_restored(
    refuse: tuple[str, ...], tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as server:
        store = store_at(server.url)
        await store.open()
        await fill_by_use(store)
        # Enough that not all of it fits a second time.
        await store.append_audits(["x" * 1000] * 3000)
        before = await content(store)
        keys = server.command("DBSIZE")
        server.command(*refuse)
        backup = await backup_of(store)
        with pytest.raises(StoreUnavailableError):
            await fill(store, parts_in(backup), replace=True, on_part=id)
        assert await content(store) == before
        # No staged key is left.
        assert server.command("DBSIZE") == keys
        await store.close()
