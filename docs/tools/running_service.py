"""A service with the bundled judge, for the scripts that measure and record."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.processes.server import SERVE, Server

SCOPE_JUDGE = SERVE[0]
_START_S = 600


@contextmanager
def running_service(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    command: Sequence[str] | None = None,
) -> Iterator[str]:
    """Runs a calibrated service whose store is in the folder, and yields its URL."""
    stored = {"SCOPE_STORE_URL": f"sqlite:///{folder}/store.db", **(settings or {})}
    with Server(folder, stored, command=command, start_timeout_s=_START_S) as server:
        yield server.url
