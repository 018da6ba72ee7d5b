"""One team's load does not stop the other teams."""

import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.integration.processes.server import Server
from tests.integration.replicas.fleet import haproxy
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison

_SECONDS_PER_PROMPT = 0.05
_LOAD_S = 3.0


def test_a_saturated_judge_stays_ready_and_alive_for_every_key(tmp_path: Path) -> None:
    """One key fills the judge with batches through the shipped proxy; the other judges pairs."""
    teams = [entry(name, ("judge",)) for name in ("one", "other")]
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_API_KEYS_FILE": str(write_keys(tmp_path / "keys.json", *teams)),
        "SCOPE_MAX_HANG_S": "2",
    }
    judge = (sys.executable, "-m", "tests.integration.processes.saturated_judge")
    answers: dict[str, Counter[tuple[int, str]]] = {"one": Counter(), "other": Counter()}
    ends = 0.0

    def post(name: str, path: str, body: object) -> None:
        while time.monotonic() < ends:
            answer = client.post(path, json=body, headers=header_of(name), timeout=60)
            code = "" if answer.is_success else answer.json()["code"]
            answers[name][answer.status_code, code] += 1

    with ExitStack() as stack:
        command = (*judge, str(_SECONDS_PER_PROMPT))
        server = stack.enter_context(Server(tmp_path, settings, command=command))
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
