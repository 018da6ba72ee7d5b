"""Tests that vLLM's engine and the service end together if one of them is killed.

If the engine dies, the service logs it and ends, so that a supervisor can restart it.
"""

import os
import signal
import threading

import httpx
import pytest

from app.demo.pairs import demo_sets
from tests.integration.processes.process_group import (
    engine_process_of,
    kill,
    members,
    seconds_until_gone,
)
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.vllm


def test_the_service_logs_the_loss_ends_and_a_second_start_finds_its_calibration(
    demo_server: Server,
) -> None:
    before = calibration_at(demo_server)
    pairs = [
        {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
        for p in demo_sets().fresh[:900]
    ]
    answers: list[httpx.Response] = []

    def post() -> None:
        body = {"alpha": None, "comparisons": pairs}
        answers.append(demo_server.client.post("/judge/batch", json=body))

    posting = threading.Thread(target=post)
    posting.start()
    with httpx.Client(base_url=demo_server.client.base_url, timeout=PATIENCE_S) as looking:
        while "scope_pending_comparisons 900.0" not in looking.get("/metrics").text:
            assert posting.is_alive()
    os.kill(engine_process_of(demo_server.pid), signal.SIGKILL)
    assert demo_server.wait() == 1
    posting.join(PATIENCE_S)
    (answer,) = answers
    assert answer.status_code == 503
    assert answer.json()["code"] == "engine_unavailable"
    last = demo_server.log.read_text().rstrip().splitlines()[-1]
    assert last == "error: vLLM's engine has died; the service has stopped: start it again"
    demo_server.start()
    assert calibration_at(demo_server) == before


def test_a_killed_service_takes_its_engine_along(demo_server: Server) -> None:
    engine, group = engine_process_of(demo_server.pid), demo_server.pid
    assert engine in members(group)
    try:
        # Kill only the service and not its group, like the kernel's out-of-memory killer.
        os.kill(demo_server.pid, signal.SIGKILL)
        assert demo_server.wait() == -signal.SIGKILL
        assert seconds_until_gone(group, at_most_s=10) < 10
    finally:
        kill(group)


def calibration_at(server: Server) -> dict[str, object]:
    """The default set, without the traffic of this process."""
    found: dict[str, object] = server.client.get("/calibrations/default").json()
    del found["traffic"]
    return found
