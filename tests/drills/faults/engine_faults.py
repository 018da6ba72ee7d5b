"""Faults of engines: vLLM's own process, and servers behind the OpenAI interface."""

import asyncio
import importlib.util
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.wiring.engines import DEMO_FOLDER
from tests.drills.faults.experiment import SERVED, Fault
from tests.drills.faults.material import demo_judge_pairs, scripted_pairs
from tests.drills.faults.scene import Scene, service
from tests.unit.engines.openai_fake import FakeServer, response, serving

# An engine's failure is an error with one of these codes, never a verdict and never a 500.
_ENGINE_ERRORS = frozenset({"503 engine_unavailable", "504 deadline_exceeded"})
_TIMEOUT_S = 4.0
_SLOWEST_S = _TIMEOUT_S + 1.0
_SETTINGS = {"timeout_s": str(_TIMEOUT_S), "probe_timeout_s": "2", "openai_timeout_s": "10"}


@dataclass
class VllmScene(Scene):
    """A service with vLLM in it."""

    engine_process: int = 0


@asynccontextmanager
async def vllm_scene(folder: Path) -> AsyncIterator[VllmScene]:
    """Real vLLM with the bundled judge, which is calibrated; examples go to a set of their own."""
    settings = {
        "engine": "vllm",
        "store_url": f"sqlite:///{folder}/calibration.db",
        "timeout_s": _SETTINGS["timeout_s"],
        "probe_timeout_s": _SETTINGS["probe_timeout_s"],
    }
    async with service(folder, **settings) as running:
        scene = VllmScene(running, demo_judge_pairs(), judged_by="default")
        scene.knows_judge = False
        # bfloat16 rounds differently in a batch of another size.
        scene.tolerance = 0.03
        scene.engine_process = engine_process_of(running.process.popen.pid)
        yield scene


def _no_vllm() -> str | None:
    return None if importlib.util.find_spec("vllm") else "vLLM is not installed"


def engine_process_of(service_process: int) -> int:
    """The process id of vLLM's EngineCore, a child of the service."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = (status.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == service_process and "EngineCore" in command:
            return int(status.parent.name)
    raise AssertionError("the service has no child process that is vLLM's EngineCore")


def _signal(number: signal.Signals) -> Callable[[VllmScene], Awaitable[None]]:
    async def act(scene: VllmScene) -> None:
        os.kill(scene.engine_process, number)

    return act


async def _await_end_and_start(scene: VllmScene) -> None:
    """Waits until the service has ended with an error, then starts it as a supervisor would."""
    async with asyncio.timeout(30):
        status = await asyncio.to_thread(scene.service.popen.wait)
    last = scene.service.log.read_text().rstrip().splitlines()[-1]
    assert status == 1, f"the service ended with {status}: {last}"
    assert "vLLM" in last or "engine" in last, f"the last line of the log is {last!r}"
    await asyncio.to_thread(scene.running.start_again)


@dataclass
class RemoteScene(Scene):
    """A service whose judge is behind a server; the server runs in this process."""

    judge: FakeServer | None = None

    @property
    def server(self) -> FakeServer:
        """The judge's server."""
        assert self.judge is not None
        return self.judge


@asynccontextmanager
async def remote_scene(folder: Path) -> AsyncIterator[RemoteScene]:
    """A server that scores by digest, and a service that uses it."""
    judge = FakeServer()
    async with serving(judge):
        settings = {
            "engine": "openai",
            "openai_urls": judge.url,
            "model": judge.name,
            "tokenizer": str(DEMO_FOLDER / "model"),
            "store_url": f"sqlite:///{folder}/calibration.db",
            **_SETTINGS,
        }
        async with service(folder, **settings) as running:
            pairs = [pair._replace(p_bar=None) for pair in scripted_pairs()]
            yield RemoteScene(running, pairs, knows_judge=False, judge=judge)


def _answering(cut: Callable[[dict[str, Any]], bytes]) -> Callable[[RemoteScene], Awaitable[None]]:
    """Answers every request but the list of models with these bytes, and cuts the connection."""

    async def act(scene: RemoteScene) -> None:
        scene.server.trouble = lambda path, body: None if path == "/models" else cut(body)

    return act


async def _honest(scene: RemoteScene) -> None:
    scene.server.trouble = lambda path, body: None


async def _silent(scene: RemoteScene) -> None:
    scene.server.is_silent = True


async def _speaking(scene: RemoteScene) -> None:
    scene.server.is_silent = False


async def _gone(scene: RemoteScene) -> None:
    await scene.server.stop()


async def _back(scene: RemoteScene) -> None:
    await scene.server.start()


def _half(body: dict[str, Any]) -> bytes:
    return response(200, b'{"choices": [{"index": 0, "logprobs": {"to', length=4096)


def _nonsense(body: dict[str, Any]) -> bytes:
    return response(200, b"\x00\xff\x13 no JSON \x80")


def _wrong_shape(body: dict[str, Any]) -> bytes:
    return response(200, json.dumps({"choices": [{"index": "no", "logprobs": [None]}]}).encode())


def _remote(
    name: str, how: str, cause: Callable[[RemoteScene], Awaitable[None]], *codes: str
) -> Fault[RemoteScene]:
    return Fault(
        name=name,
        how=how,
        scene=remote_scene,
        cause=cause,
        heal=_honest,
        judge_may=SERVED | _ENGINE_ERRORS | frozenset(codes),
        slowest_judge_s=_SLOWEST_S,
    )


VLLM_FAULTS: tuple[Fault[VllmScene], ...] = (
    Fault(
        name="vllm-kill",
        how="vLLM's EngineCore killed with -9; the service ends itself, and is started again",
        scene=vllm_scene,
        cause=_signal(signal.SIGKILL),
        heal=_await_end_and_start,
        judge_may=SERVED | _ENGINE_ERRORS | {"503 draining", "no answer (refused)"},
        slowest_judge_s=_SLOWEST_S,
        obstacle=_no_vllm,
        ends_service=True,
    ),
    Fault(
        name="vllm-hang",
        how="vLLM's EngineCore stopped with SIGSTOP, continued",
        scene=vllm_scene,
        cause=_signal(signal.SIGSTOP),
        heal=_signal(signal.SIGCONT),
        judge_may=SERVED | _ENGINE_ERRORS,
        slowest_judge_s=_SLOWEST_S,
        obstacle=_no_vllm,
    ),
)
REMOTE_FAULTS: tuple[Fault[RemoteScene], ...] = (
    Fault(
        name="remote-hang",
        how="the judge's server accepts requests and does not answer",
        scene=remote_scene,
        cause=_silent,
        heal=_speaking,
        judge_may=SERVED | _ENGINE_ERRORS,
        slowest_judge_s=_SLOWEST_S,
    ),
    Fault(
        name="remote-gone",
        how="the judge's server cuts its connections and refuses new ones, then comes back",
        scene=remote_scene,
        cause=_gone,
        heal=_back,
        judge_may=SERVED | _ENGINE_ERRORS,
        slowest_judge_s=_SLOWEST_S,
    ),
    _remote(
        "remote-reset", "every request is cut off without an answer", _answering(lambda _: b"")
    ),
    _remote("remote-half", "half a body, then the connection is cut", _answering(_half)),
    _remote(
        "remote-garbage", "bytes that are not JSON", _answering(_nonsense), "502 judgment_failed"
    ),
    _remote(
        "remote-shape",
        "JSON that is not an answer",
        _answering(_wrong_shape),
        "502 judgment_failed",
    ),
    _remote(
        "remote-500",
        "status 500 for everything",
        _answering(lambda _: response(500, b"{}")),
        "502 judgment_failed",
    ),
)
