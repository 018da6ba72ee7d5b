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

BATCH = 900


def test_the_service_logs_the_loss_ends_and_a_second_start_finds_its_calibration(
    demo_server: Server,
) -> None:
    before = calibration_at(demo_server)
    posting, answers = batch_in_progress(demo_server)
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


# Draining without a signal to vLLM is tested with the scripted judge, too.
@pytest.mark.parametrize("group", [pytest.param(False, marks=pytest.mark.long), True])
def test_sigterm_ends_a_batch_with_its_verdicts_or_with_an_error(
    demo_server: Server, group: bool
) -> None:
    posting, answers = batch_in_progress(demo_server)
    # systemd's KillMode=mixed signals the service alone; its default signals vLLM's process, too,
    # which then ends the prompts in progress.
    if group:
        os.killpg(demo_server.pid, signal.SIGTERM)
    else:
        demo_server.send_signal(signal.SIGTERM)
    posting.join(PATIENCE_S)
    demo_server.wait()
    (answer,) = answers
    if group:
        # Never a verdict that no judge gave; another replica can be asked.
        assert answer.status_code == 503, answer.text[:300]
    else:
        assert answer.status_code == 200
        verdicts = [result["verdict"] for result in answer.json()["results"]]
        assert len(verdicts) == BATCH
        assert set(verdicts) == {"A", "B"}


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
    found: dict[str, object] = server.client.get("/calibrations/default").json()
    return found


def batch_in_progress(server: Server) -> tuple[threading.Thread, list[httpx.Response]]:
    """A thread that waits for the judgments of a batch, and the list that gets its answer."""
    pairs = [
        {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
        for p in demo_sets().fresh[:BATCH]
    ]
    answers: list[httpx.Response] = []

    def post() -> None:
        body = {"alpha": None, "comparisons": pairs}
        answers.append(server.client.post("/judge/batch", json=body))

    posting = threading.Thread(target=post)
    posting.start()
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as looking:
        while f"scope_pending_comparisons {BATCH}.0" not in looking.get("/metrics").text:
            assert posting.is_alive()
    return posting, answers
