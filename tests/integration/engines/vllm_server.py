"""Runs vLLM's API server with the demo judge or another model, in a process group of its own."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.settings import DEMO_FOLDER, Settings
from tests.patience import VLLM_START_S
from tests.programs import HttpServer, free_port
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
    command = [sys.executable, *program, "--port", str(port), *ARGUMENTS, *more]
    given: dict[str, Any] = {"port": port, "ready_path": "/health"}
    server = HttpServer(
        folder, "server", command, ENVIRONMENT, start_timeout_s=VLLM_START_S, **given
    )
    server.start()
    try:
        yield f"{server.url}/v1"
    finally:
        server.kill()
        server.client.close()
