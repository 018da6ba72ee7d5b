"""A service with the bundled judge, for the scripts that measure and record."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

SCOPE_JUDGE = str(Path(sys.executable).with_name("scope-judge"))
_START_S = 600


@contextmanager
def running_service(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    command: Sequence[str] = (SCOPE_JUDGE, "serve"),
) -> Iterator[str]:
    """Runs a calibrated service whose store is in the folder, and yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = f"sqlite:///{folder}/store.db"
    process = subprocess.Popen(
        command,
        env={**os.environ, "SCOPE_PORT": str(port), "SCOPE_STORE_URL": store, **(settings or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise SystemExit("the service does not become ready")
