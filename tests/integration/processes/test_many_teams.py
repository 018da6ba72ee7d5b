"""One team's load or one team's lost set does not stop the other teams."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.integration.processes.server import Server
from tests.integration.replicas.fleet import haproxy
from tests.redis_server import RedisServer
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison

_SECONDS_PER_PROMPT = 0.05
_LOAD_S = 3.0


@contextmanager
def serving(folder: Path, *command: str, **settings: str) -> Iterator[Server]:
    """A service with a scripted judge and the keys `one` and `other`."""
    keys = write_keys(
        folder / "keys.json", *(entry(name, ("judge", "calibrate")) for name in ("one", "other"))
    )
    given = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_API_KEYS_FILE": str(keys),
        **settings,
    }
    with Server(folder, given, command=command or None) as server:
        yield server


def test_a_saturated_judge_stays_ready_and_alive_for_every_key(tmp_path: Path) -> None:
    """One key fills the judge with batches through the shipped proxy; the other judges pairs."""
    judge = (sys.executable, "-m", "tests.integration.processes.saturated_judge")
    answers: dict[str, Counter[tuple[int, str]]] = {"one": Counter(), "other": Counter()}
    ends = 0.0

    def post(name: str, path: str, body: object) -> None:
        while time.monotonic() < ends:
            answer = client.post(path, json=body, headers=header_of(name), timeout=60)
            code = "" if answer.is_success else answer.json()["code"]
            answers[name][answer.status_code, code] += 1

    with ExitStack() as stack:
        server = stack.enter_context(
            serving(tmp_path, *judge, str(_SECONDS_PER_PROMPT), SCOPE_MAX_HANG_S="2")
        )
        front = stack.enter_context(haproxy(tmp_path, [server.port]))
        client = stack.enter_context(httpx.Client(base_url=front.url))
        batch = {"comparisons": [comparison(alpha=None)] * 15}
        ends = time.monotonic() + _LOAD_S
        threads = [
            threading.Thread(target=post, args=("one", "/judge/batch", batch)) for _ in range(3)
        ]
        threads.append(
            threading.Thread(target=post, args=("other", "/judge", comparison(alpha=None)))
        )
        for thread in threads:
            thread.start()
        while time.monotonic() < ends:
            assert server.client.get("/readyz").status_code == 200
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        assert set(answers["one"]) == set(answers["other"]) == {(200, "")}
        assert server.client.get("/healthz").status_code == 200


def test_a_lost_set_fails_its_own_callers_only(tmp_path: Path) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(tmp_path))
        server = stack.enter_context(serving(tmp_path, SCOPE_STORE_URL=redis.url))
        client = server.client
        examples = [
            {**comparison(question=f"Question {i}?"), "label": "A" if i % 2 else "B"}
            for i in range(40)
        ]
        for name in ("one", "other"):
            body = {"calibration": name, "examples": examples}
            assert client.post("/calibrate", json=body, headers=header_of(name)).is_success
            assert judged(client, name).status_code == 200
        keys = redis.command("KEYS", "scope:*one*")
        assert isinstance(keys, list)
        assert keys
        redis.command("DEL", *map(str, keys))
        deadline = time.monotonic() + 10
        while judged(client, "one").is_success:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert judged(client, "one").json()["code"] == "store_corrupt"
        assert judged(client, "other").status_code == 200
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")


def judged(client: httpx.Client, calibration: str) -> httpx.Response:
    body = comparison(calibration=calibration)
    return client.post("/judge", json=body, headers=header_of(calibration))
