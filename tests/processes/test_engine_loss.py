"""A vLLM whose engine dies: the service says so and ends, for a supervisor to start it again."""

import os
import signal
import threading

import httpx
import pytest

from app.demo.pairs import demo_sets
from tests.faults.engine_faults import engine_process_of
from tests.processes.server import Server

pytestmark = pytest.mark.vllm


# The last that the run's service serves: to load another judge for it would take half a minute.
def test_the_service_ends_with_a_last_line_and_what_is_under_way_gets_an_error(
    demo_server: Server,
) -> None:
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
    with httpx.Client(base_url=demo_server.client.base_url, timeout=60) as looking:
        while "scope_pending_comparisons 900.0" not in looking.get("/metrics").text:
            assert posting.is_alive()
    os.kill(engine_process_of(demo_server.pid), signal.SIGKILL)
    assert demo_server.wait(60) == 1
    posting.join(60)
    (answer,) = answers
    assert answer.status_code == 503
    assert answer.json()["code"] == "engine_unavailable"
    last = demo_server.log.read_text().rstrip().splitlines()[-1]
    assert last == ("error: vLLM's engine has died; the service has ended and can be started again")
