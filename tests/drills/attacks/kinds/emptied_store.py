"""Redis loses its data under a running service, and gets it back."""

import time
from collections import Counter
from contextlib import ExitStack

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

_JUDGMENTS = 20


def emptied(scene: Scene) -> str:
    """Empties the Redis of a second service, judges and probes, and restores the set."""
    folder = scene.folder / "emptied"
    (folder / "redis").mkdir(parents=True)
    redis = RedisServer(folder / "redis")
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": redis.url,
        "PYTHONPATH": str(scene.code),
    }
    with ExitStack() as stack:
        stack.enter_context(redis)
        server = stack.enter_context(Server(folder, settings))
        examples = [{**pair(number), "label": "A"} for number in range(100)]
        server.client.post("/calibrate", json={"examples": examples}).raise_for_status()
        server.client.post("/judge", json=pair(1)).raise_for_status()
        exported = server.client.get("/calibrations/default/examples").json()
        redis.command("FLUSHALL")
        time.sleep(1.0)  # a judgment uses its set for half a second without asking the store
        answers = Counter(_outcome(server.client, number) for number in range(_JUDGMENTS))
        readiness = server.client.get("/readyz").status_code
        shown = "scope_calibration_lost{" in server.client.get("/metrics").text
        body = {field: exported[field] for field in ("fingerprint", "examples")}
        again = server.client.post("/calibrations/default/examples", json=body)
        after = _ready_again(server.client)
    counts = ", ".join(f"{count} x {outcome}" for outcome, count in sorted(answers.items()))
    figure = (
        f"{_JUDGMENTS} judgments after FLUSHALL: {counts}; /readyz {readiness}; the metric of "
        f"ScopeSetLost is {'shown' if shown else 'absent'}; import {again.status_code}, then "
        f"/readyz {after}"
    )
    assert readiness == 500, figure
    assert shown, figure
    assert set(answers) == {"store_corrupt"}, figure
    assert after == 200, figure
    return figure


def _outcome(client: httpx.Client, number: int) -> str:
    answer = client.post("/judge", json=pair(number))
    said = answer.json()
    return str(said["code"] if answer.status_code != 200 else said["verdict"])


def _ready_again(client: httpx.Client) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while (status := client.get("/readyz").status_code) != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    return status


ATTACKS = (
    Attack(
        "emptied-store",
        "the Redis of a running service is emptied (FLUSHALL); then the set is imported again",
        emptied,
        cheap=True,
        # Another service than that of the scene is attacked.
        watched=False,
    ),
)
