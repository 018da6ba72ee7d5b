"""`audits label` on texts that a real service keeps: kill -9 loses and repeats no answer."""

import asyncio
import signal
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.integration.processes.server import Server
from tests.integration.processes.test_audits import folded, listed, settings, text_keys
from tests.redis_server import RedisServer
from tests.unit.cli.label_terminal import Terminal, labelling
from tests.unit.cli.test_audits_label import prefer_first, shown
from tests.unit.cli.test_audits_label_kept import calibrate, judge

COUNT = 5


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def started(server: Server, cache: Path) -> AbstractContextManager[Terminal]:
    options = ("--url", url_of(server))
    environment = {"XDG_CACHE_HOME": str(cache)}
    return labelling(*options, command=("audits", "label"), environment=environment)


@pytest.mark.parametrize("scheme", ["sqlite", "redis"])
def test_kill_9_of_the_command_and_of_the_service_loses_and_repeats_no_answer(
    scheme: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    store_url = redis_server.url if scheme == "redis" else f"sqlite:///{tmp_path}/calibration.db"
    with Server(tmp_path, settings(store_url) | {"SCOPE_AUDIT_RATE": "1"}) as server:
        calibrate(url_of(server))
        judge(url_of(server), range(COUNT))
        with started(server, tmp_path) as terminal:
            assert [prefer_first(terminal) for _ in range(2)] == [0, 1]
            # The next pair is shown when the answer before it is durable.
            assert shown(terminal).number == 2
            terminal.process.send_signal(signal.SIGKILL)
            terminal.process.wait()
        server.kill()
        assert set(asyncio.run(labels_in(store_url)).values()) == set()
        assert len(asyncio.run(text_keys(store_url))) == COUNT
        server.start()
        with started(server, tmp_path) as terminal:
            assert [prefer_first(terminal) for _ in range(2)] == [2, 3]
            assert shown(terminal).number == 4
            # The command sends its answers to a service that has just been killed.
            server.kill()
            terminal.press("q")
            terminal.until("waiting for the service")
            server.start()
            assert "labelled 2, closed 0" in terminal.end()
            assert terminal.process.returncode == 0
        found = list(listed(server.client).values())
        assert found == ["A"] * 4 + [None]
    assert list(asyncio.run(labels_in(store_url)).values()) == [1] * 4
    assert len(asyncio.run(text_keys(store_url))) == 1


async def labels_in(store_url: str) -> Counter[str]:
    """Id -> number of its labels in the log."""
    _, labels = await folded(store_url)
    return Counter(label.id for label in labels)
