"""Our service as users run it: with a key, metrics, audits and SQLite."""

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from app.api.keys import hash_of
from tests.integration.processes.server import SERVE, Server
from tests.patience import VLLM_START_S
from tests.programs import free_port

# Not secret: each service lives only as long as its figures.
KEY = "scope_key_of_the_bench"
HEADERS = {"Authorization": f"Bearer {KEY}"}
AUDIT_RATE = 0.01
# Metrics, vLLM's among them, are on by default.
AS_USERS_RUN_IT = f"ours with a key, metrics, SQLite and SCOPE_AUDIT_RATE={AUDIT_RATE}"


def our_service(folder: Path, settings: Mapping[str, str]) -> Server:
    """`scope-judge serve` as users run it, in a process of its own."""
    defaults = {
        "SCOPE_STORE_URL": f"sqlite:///{folder}/store-{free_port()}.db",
        "SCOPE_API_KEYS_FILE": str(keys_file(folder)),
        "SCOPE_AUDIT_RATE": str(AUDIT_RATE),
    }
    return Server(folder, {**defaults, **settings}, command=SERVE, start_timeout_s=VLLM_START_S)


def keys_file(folder: Path) -> Path:
    """The file with the one key of the bench."""
    file = folder / "keys.json"
    entry = {
        "name": "bench",
        "sha256": hash_of(KEY.encode()).hex(),
        "roles": ["judge", "calibrate", "metrics"],
        "created": "2026-01-01T00:00:00Z",
    }
    file.write_text(json.dumps({"keys": [entry]}), encoding="utf-8")
    file.chmod(0o600)
    return file


@contextmanager
def scripted_service(folder: Path) -> Iterator[Server]:
    """A service with the scripted judge and a calibration set."""
    with our_service(folder, {"SCOPE_ENGINE": "scripted"}) as server:
        calibrate(server, _examples())
        yield server


def calibrate(server: Server, examples: list[dict[str, str]]) -> None:
    """Calibrates the set `default` with labeled pairs."""
    body = {"examples": examples}
    server.client.post("/calibrate", json=body, headers=HEADERS).raise_for_status()


def _examples() -> list[dict[str, str]]:
    """Labeled pairs on which the scripted judge is right most of the time."""
    rng = random.Random(5)
    examples = []
    for i in range(400):
        a, b = rng.gauss(0, 1.5), rng.gauss(0, 1.5)
        label = "A" if a - b + rng.gauss(0, 0.5) > 0 else "B"
        examples.append(
            {
                "question": f"Calibration question {i}",
                "response_a": f"quality={a:.3f}",
                "response_b": f"quality={b:.3f}",
                "label": label,
            }
        )
    return examples
