"""Fixtures that tests of several packages share."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG, create_ssl_context
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S
from tests.redis_server import RedisServer
from tests.surroundings import drawn_seed, shuffled_ranks

# Slow examples and slow drawing of examples must not fail: a machine may be slow or busy.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# So must a slow answer: httpx itself waits five seconds, unless a request says otherwise.
DEFAULT_TIMEOUT_CONFIG.read = PATIENCE_S
# Each client of httpx loads the certificates of all authorities, which takes 28 ms, also for http.
pytest.MonkeyPatch().setattr(
    "httpx._transports.default.create_ssl_context", cache(create_ssl_context)
)

_UNIT = "tests/unit/"
# Their files share a browser.
_BROWSERS = "tests/integration/desk/"

# `pytest ... &` in a script ignores Ctrl-C, and so would the commands that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A full garbage collection visits every object. The million objects of the imports and of 8,000
# collected tests live until the end, so they are frozen once (`pytest_collection_finish`).
gc.disable()


def pytest_report_header() -> list[str]:
    """The surroundings, where tests/__main__.py has drawn them."""
    return _surroundings()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode
) -> None:
    """Repeats the surroundings at the end of a run that failed."""
    for line in _surroundings() if exitstatus else ():
        terminalreporter.write_line(line)


def pytest_collection_finish() -> None:
    """Lets the garbage collector begin, with the objects that the tests make."""
    gc.freeze()
    gc.enable()
    # A service in this process would freeze its objects, which are garbage after its tests.
    pytest.MonkeyPatch().setattr(gc, "freeze", lambda: None)


def _surroundings() -> list[str]:
    return [text for text in [os.environ.get("TESTS_SURROUNDINGS")] if text]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffles the files of a run with a seed; the longest come first, so that no worker waits.

    Files with vLLM are the first, and stay with the others of their folder, which share a server.
    Those of `tests/unit` are the last: many, and short.
    """
    seed = drawn_seed()
    if seed is None:
        return
    rank = shuffled_ranks([str(item.path) for item in items], seed)
    folders = shuffled_ranks([str(item.path.parent) for item in items], seed)

    def place(item: pytest.Item) -> tuple[bool, bool, int, int]:
        has_vllm, is_unit = _has_vllm(item.path), item.nodeid.startswith(_UNIT)
        folder = folders[str(item.path.parent)] if has_vllm else 0
        return (not has_vllm, is_unit, folder, rank[str(item.path)])

    items.sort(key=place)


@cache
def _has_vllm(file: Path) -> bool:
    return "mark.vllm" in file.read_text(encoding="utf-8")


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """One file to one worker, so that a file's services start once.

    All files with vLLM go to one worker, and so do those of a folder with a browser.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = cast("str", super()._split_scope(nodeid))
        if _has_vllm(self.config.rootpath / file):
            return "vllm"
        return str(Path(file).parent) if file.startswith(_BROWSERS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Shares the files among the workers."""
    return _Scheduling(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The service runs on asyncio's event loop."""
    return "asyncio"


# Loggers that the service and uvicorn configure when they start in the process of the tests.
_CONFIGURED_LOGGERS = (None, "app", "uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error")


@pytest.fixture(scope="module", autouse=True)
def _process_as_before() -> Iterator[None]:
    """Takes back what a file of tests changed in its process, for the files after it."""
    folder, environment = Path.cwd(), dict(os.environ)
    loggers = [logging.getLogger(name) for name in _CONFIGURED_LOGGERS]
    before = [(each.level, [*each.handlers], [*each.filters], each.propagate) for each in loggers]
    yield
    os.chdir(folder)
    for name in os.environ.keys() - environment.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(environment)
    for logger, (level, handlers, filters, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:], logger.propagate = handlers, filters, propagate


@pytest.fixture(scope="module")
def undrawn_figures() -> Iterator[None]:
    """Leaves the figures of evaluation reports empty: drawing them takes a third of a run.

    Tests in `tests/unit/evaluation/report` and of real evaluations draw them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.evaluation.report.figures.write_figures", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def _redis_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_server(_redis_process: RedisServer) -> RedisServer:
    """The common Redis server, empty for each test; tests that stop or fill one make their own."""
    _redis_process.command("FLUSHALL")
    return _redis_process


@pytest.fixture(scope="session")
def demo_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The process of `demo_server`."""
    folder: Path = tmp_path_factory.mktemp("demo")
    settings = {
        "SCOPE_STORE_URL": f"sqlite:///{folder}/calibration.db",
        # A batch of 1,000 takes minutes on a slow, busy machine.
        "SCOPE_TIMEOUT_S": f"{PATIENCE_S:g}",
        # vLLM has cached nothing, as on the first start of a machine.
        "VLLM_CACHE_ROOT": f"{folder}/cache",
    }
    with Server(folder, settings, start_timeout_s=VLLM_START_S) as server:
        yield server
        # A test may have ended it.
        server.start_unless_running()
        # Uvicorn ends itself with the received signal after everything is closed.
        assert server.stop() in (0, -signal.SIGTERM), "SIGTERM must stop the service cleanly"


@pytest.fixture
def demo_server(demo_process: Server) -> Server:
    """The service as `make serve` starts it: real vLLM, the bundled judge, its set in SQLite.

    A test may end it: the next test starts it again.
    """
    demo_process.start_unless_running()
    return demo_process
