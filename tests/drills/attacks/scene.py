"""The service under attack: `scope-judge serve` with keys, the scripted engine and SQLite."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal

from app.api.auth.keys import hash_of
from tests.drills.faults.proxy import Proxy
from tests.integration.processes.server import Server
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[3]
# Key -> its roles. The keys are not secret: each service lives only as long as one attack.
_ROLES = {
    "judge": ["judge"],
    "read": [],
    "calibrate": ["calibrate"],
    "admin": ["judge", "calibrate", "admin"],
    "metrics": ["metrics"],
}
_WARM_UP_JUDGMENTS = 300
_CALIBRATION_SIZE = 300
_REDIS_ANSWERS_AFTER_S = 0.05


class Scene:
    """A running service and everything that an attacker or a user of it needs.

    Args:
        folder: Folder for the keys, the store and the log.
        settings: SCOPE_* variables; they override the defaults of a scene.
        code: Folder whose `app` package is served.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, code: Path = ROOT
    ) -> None:
        self.folder = folder
        self.code = code
        self.store = folder / "calibration.db"
        self.keys_file = folder / "keys.json"
        self._write_keys()
        self.server = Server(
            folder,
            {
                "SCOPE_ENGINE": "scripted",
                "SCOPE_STORE_URL": f"sqlite:///{self.store}",
                "SCOPE_API_KEYS_FILE": str(self.keys_file),
                "PYTHONPATH": str(code),
                **(settings or {}),
            },
        )

    def _write_keys(self) -> None:
        # An older release refuses a keys file with a role that it does not know (`metrics`).
        known = _roles_file(self.code).read_text(encoding="utf-8")
        entries = [
            {
                "name": name,
                "sha256": hash_of(self.key(name).encode()).hex(),
                "roles": [role for role in roles if f'"{role}"' in known],
                "created": "2026-01-01T00:00:00Z",
            }
            for name, roles in _ROLES.items()
        ]
        # The service reads this file twice a second: it must never read a partial file.
        whole = self.keys_file.with_suffix(".new")
        whole.write_text(json.dumps({"keys": entries}), encoding="utf-8")
        whole.chmod(0o600)
        os.replace(whole, self.keys_file)

    @staticmethod
    def key(name: str) -> str:
        """The key of this name: judge, read, calibrate, admin or metrics."""
        return f"scope_{name}_of_a_drill"

    @property
    def judge_key(self) -> str:
        """A key with the role `judge`."""
        return self.key("judge")

    @property
    def read_key(self) -> str:
        """A key without a role."""
        return self.key("read")

    @property
    def calibrate_key(self) -> str:
        """A key with the role `calibrate`."""
        return self.key("calibrate")

    @property
    def admin_key(self) -> str:
        """A key with the roles `judge`, `calibrate` and `admin`."""
        return self.key("admin")

    @property
    def metrics_key(self) -> str:
        """A key with the role `metrics`."""
        return self.key("metrics")

    @property
    def port(self) -> int:
        """The port that the service listens on."""
        return self.server.port

    @property
    def pid(self) -> int:
        """The process id of the service."""
        return self.server.pid

    @property
    def log(self) -> Path:
        """The file with the service's output."""
        return self.server.log

    def client(self, key: str | None = None, *, timeout_s: float = 120.0) -> httpx.Client:
        """A client that sends this key with every request."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=timeout_s
        )

    def prepare(self) -> None:
        """Calibrates the set `default`, and judges until the service has its usual memory size."""
        examples = [
            {**pair(number), "label": "A" if number % 8 else "B"}
            for number in range(_CALIBRATION_SIZE)
        ]
        with self.client(self.admin_key) as client:
            calibrated = client.post("/calibrate", json={"examples": examples})
            calibrated.raise_for_status()
            for number in range(_WARM_UP_JUDGMENTS):
                client.post("/judge", json=pair(number)).raise_for_status()


def _roles_file(code: Path) -> Path:
    """The file of a release that names the roles; release 0.1.0 has it in another folder."""
    api = code / "app" / "api"
    return next(file for file in (api / "auth/callers.py", api / "callers.py") if file.exists())


def pair(number: int, *, gap: float | None = None) -> dict[str, str]:
    """A comparison; the larger the gap, the more the scripted engine prefers response A."""
    better = (number % 50) / 10 if gap is None else gap
    return {
        "question": f"Question {number}?",
        "response_a": f"quality={better:.6f}",
        "response_b": "quality=0.000000",
    }


@contextmanager
def _slow_redis(folder: Path) -> Iterator[str]:
    """The URL of a Redis behind a network that delays each of its answers."""
    with RedisServer(folder) as server, start_blocking_portal() as portal:
        proxy = Proxy(server.port, answers_after_s=_REDIS_ANSWERS_AFTER_S)
        with portal.wrap_async_context_manager(proxy):
            yield f"redis://127.0.0.1:{proxy.port}/0"


@contextmanager
def running(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    code: Path = ROOT,
    slow_redis: bool = False,
) -> Iterator[Scene]:
    """A scene whose service runs, is calibrated, and has done some work."""
    with ExitStack() as stack:
        if slow_redis:
            url = stack.enter_context(_slow_redis(folder))
            settings = {**(settings or {}), "SCOPE_STORE_URL": url}
        scene = Scene(folder, settings, code=code)
        stack.enter_context(scene.server)
        scene.prepare()
        time.sleep(0.5)  # wait until the memory of the last answers is freed
        yield scene
