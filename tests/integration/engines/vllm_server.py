"""Runs vLLM's API server with the demo judge or another model, in a process group of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.settings import Settings
from app.wiring.engines import DEMO_FOLDER
from tests.integration.processes.server import free_port
from tests.patience import VLLM_START_S
from tests.serving import client_of_settings

FOLDER = str(DEMO_FOLDER / "model")
# Another name than the folder's.
MODEL = "the-judge"
KEY = "xyzzy-key"
# As app/judges/engines/vllm_start.py sets them on a CPU.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0)))),
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    # Its sockets need a short path.
    "VLLM_RPC_BASE_PATH": "/tmp",
}
ARGUMENTS = (
    "--model",
    FOLDER,
    "--served-model-name",
    MODEL,
    "--api-key",
    KEY,
    "--dtype",
    "float32",
    "--enforce-eager",
    "--block-size",
    "32",
    "--kv-cache-memory-bytes",
    str(2**27),
    "--no-enable-chunked-prefill",
    "--language-model-only",
    "--disable-log-stats",
    "--host",
    "127.0.0.1",
)
API_SERVER = ("-m", "vllm.entrypoints.openai.api_server")


def service(**given: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """The service with these settings, in this process."""
    return client_of_settings(Settings(**{"store_url": "memory://", **given}))


def body(pair: Any) -> dict[str, str]:
    """A pair as a request."""
    return {name: getattr(pair, name) for name in ("question", "response_a", "response_b")}


def remote(url: str, tokenizer: str) -> dict[str, Any]:
    """Settings of a judge behind a server of `vllm_server`."""
    given = {"engine": "openai", "openai_urls": url, "openai_api_key": KEY, "model": MODEL}
    return {**given, "tokenizer": tokenizer}


@contextmanager
def vllm_server(
    folder: Path, program: Sequence[str] = API_SERVER, *, more: Sequence[str] = ()
) -> Iterator[str]:
    """Yields the base URL of a server that is ready.

    Args:
        folder: Folder of the log.
        program: Arguments of Python that run the server.
        more: Further arguments of the server, which override the usual ones.
    """
    port = free_port()
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *program, "--port", str(port), *ARGUMENTS, *more],
            env=os.environ | ENVIRONMENT,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + VLLM_START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"vLLM ended:\n{log.read_text()}"
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"vLLM was not ready in time:\n{log.read_text()}")
