"""Our service as users run it: with a key, metrics, audits and SQLite."""

import json
import random
from pathlib import Path

import httpx

from app.api.keys import hash_of
from tests.benchmarks.processes import HttpServer, serve
from tests.integration.processes.server import free_port
from tests.patience import PATIENCE_S

# Not secret: each service lives only as long as its figures.
KEY = "scope_key_of_the_bench"
HEADERS = {"Authorization": f"Bearer {KEY}"}
AUDIT_RATE = 0.01
# Metrics, vLLM's among them, are on by default.
AS_USERS_RUN_IT = f"ours with a key, metrics, SQLite and SCOPE_AUDIT_RATE={AUDIT_RATE}"


def our_service(folder: Path, **settings: str) -> HttpServer:
    """`scope-judge serve` as users run it; settings are named without the prefix SCOPE_."""
    port = str(free_port())
    defaults = {
        "store_url": f"sqlite:///{folder}/store-{port}.db",
        "api_keys_file": str(keys_file(folder)),
        "audit_rate": str(AUDIT_RATE),
        "port": port,
    }
    return serve(folder, {**defaults, **settings})


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


def scripted_service(folder: Path, **settings: str) -> HttpServer:
    """A service with the scripted judge and a calibration set."""
    server = our_service(folder, engine="scripted", **settings)
    try:
        calibrate(server, _examples())
    except BaseException:
        server.stop()
        raise
    return server


def calibrate(server: HttpServer, examples: list[dict[str, str]]) -> None:
    """Calibrates the set `default` with labeled pairs."""
    httpx.post(
        f"{server.url}/calibrate", json={"examples": examples}, headers=HEADERS, timeout=PATIENCE_S
    ).raise_for_status()


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
