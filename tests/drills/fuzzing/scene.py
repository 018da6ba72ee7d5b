"""The service under fuzzing: `scope-judge serve` with the scripted judge and a real store."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.drills.fuzzing.promises import Document
from tests.drills.fuzzing.tally import Tally
from tests.integration.processes.server import Server
from tests.redis_server import RedisServer
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples

# A body that never ends is answered after this time. A valid one of 8 MB takes 5 s on a busy
# machine. A request that takes HANG_S counts as hung.
TIMEOUT_S = 12
HANG_S = 120.0
_KEEPER = "keeper"


class Scene(NamedTuple):
    """A running service, with its document and its key.

    Args:
        name: Name of its store, and whether it has keys.
        server: The process.
        document: The service's OpenAPI document.
        headers: Headers that every request needs.
    """

    name: str
    server: Server
    document: Document
    headers: dict[str, str]

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def key(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers as bytes."""
        return tuple((name.encode(), value.encode()) for name, value in self.headers.items())

    def faults(self) -> list[str]:
        """The faults of the service itself: not ready, or a wrong answer to a known comparison."""
        try:
            ready = self.server.client.get("/readyz", timeout=HANG_S)
            judged = self.server.client.post(
                "/judge", json=comparison(alpha=None), headers=self.headers, timeout=HANG_S
            )
        except httpx.HTTPError as exc:
            return [f"the service does not answer: {type(exc).__name__}"]
        if ready.json() != {"status": "ready"}:
            return [f"/readyz says {ready.status_code}: {ready.text[:200]}"]
        # The gap is 3.9 in both orders: p_bar = 1 / (1 + e**-3.9).
        expected = 1 / (1 + math.exp(-3.9))
        if judged.status_code != 200 or abs(judged.json()["p_bar"] - expected) > 1e-12:
            return [f"a known judgment got {judged.status_code}: {judged.text[:200]}"]
        return []

    def note_health(self, tally: Tally) -> None:
        """Records whether the service is still ready and still judges in the same way."""
        check = "still ready, with the same answer to a known comparison"
        found = self.faults()
        for fault in found:
            tally.failed(check, f"{self.name}: {fault}")
        if not found:
            tally.passed(check)

    def calibration_faults(self) -> list[str]:
        """The faults of a calibration and a judgment after all other requests."""
        body = {"calibration": "after-all", "examples": examples()}
        made = self.server.client.post("/calibrate", json=body, headers=self.headers)
        asked = comparison(calibration="after-all")
        judged = self.server.client.post("/judge", json=asked, headers=self.headers)
        if made.status_code != 200 or made.json()["n"] != 60:
            return [f"a valid calibration got {made.status_code}: {made.text[:200]}"]
        if judged.status_code != 200 or judged.json()["verdict"] != "A":
            return [f"a valid judgment got {judged.status_code}: {judged.text[:200]}"]
        return []


@contextmanager
def sqlite_scene(folder: Path) -> Iterator[Scene]:
    """A service without keys on a SQLite file."""
    with _scene(folder, f"sqlite:///{folder}/sets.db") as running:
        yield running


@contextmanager
def redis_scene(folder: Path) -> Iterator[Scene]:
    """A service with keys on a Redis of its own."""
    with RedisServer(folder) as server, _scene(folder, server.url, with_keys=True) as running:
        yield running


@contextmanager
def _scene(folder: Path, store_url: str, *, with_keys: bool = False) -> Iterator[Scene]:
    """Runs the service.

    Args:
        folder: Folder for its log, its keys and the files of its store.
        store_url: URL of its store.
        with_keys: Whether requests need a key.
    """
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": store_url,
        "SCOPE_TIMEOUT_S": str(TIMEOUT_S),
        "SCOPE_LOG_LEVEL": "warning",
    }
    headers: dict[str, str] = {}
    if with_keys:
        file = write_keys(
            folder / "keys.json", entry(_KEEPER, ("judge", "calibrate", "label", "admin"))
        )
        settings["SCOPE_API_KEYS_FILE"] = str(file)
        headers = header_of(_KEEPER)
    name = store_url.partition(":")[0] + (" with keys" if with_keys else "")
    with Server(folder, settings) as server:
        response = server.client.get("/openapi.json", headers=headers)
        yield Scene(name, server, Document(response.json()), headers)
