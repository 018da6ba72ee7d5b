"""Tests of `make serve` as a new user gets it: real vLLM and the calibrated bundled judge."""

import threading
import time

import httpx
import pytest

from app.demo.pairs import demo_sets
from tests.demo_judge.measure import ALPHAS, measure, report
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.vllm

PAIR = {
    "question": "Which number is larger, 4821 or 312?",
    "response_a": "4821",
    "response_b": "312",
}


def test_the_first_judgment_of_a_fresh_service_is_a_calibrated_verdict(demo_server: Server) -> None:
    answer = demo_server.client.post("/judge", json=PAIR)
    assert answer.status_code == 200
    judgment = answer.json()
    assert judgment["verdict"] == "A"
    assert judgment["calibration"] == {"name": "default", "version": 1, "n": 600}
    assert judgment["judge"] == "demo"
    assert 0 < judgment["risk_level"] <= judgment["alpha"] == 0.1
    assert 0.9 < judgment["label_mass"] <= 1


@pytest.mark.parametrize("pairs", [500, pytest.param(2000, marks=pytest.mark.long)])
def test_the_demo_judge_reports_its_accuracy_and_keeps_its_guarantee(
    demo_server: Server, pairs: int
) -> None:
    found = measure(demo_server.client, pairs=pairs)
    print(report(found))
    assert found.n == pairs
    assert 0.75 <= found.accuracy <= 0.92
    assert found.auroc >= 0.72
    assert 0.40 <= found.accepted[0.10] <= 0.95
    assert 0 < found.flips < 0.5
    for alpha in ALPHAS:
        # Nearly half of all calibrations exceed alpha by a little: one calibration with 600
        # examples has a standard error of about sqrt(alpha / 600), and 2,000 fresh pairs about
        # half of that.
        assert found.error[alpha] <= alpha + 3 * (alpha / 600 + alpha / pairs) ** 0.5


def test_metrics_contain_vllms_own_and_the_time_by_stage(demo_server: Server) -> None:
    demo_server.client.post("/judge", json=PAIR)
    lines = demo_server.client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    served = [float(v) for k, v in values.items() if k.startswith("vllm:request_success_total{")]
    # Each of our prompts is one request of vLLM; only vLLM counts the warm-up.
    assert sum(served) >= float(values["scope_engine_prompts_total"]) > 0
    for stage in ("queue", "render", "engine", "decide"):
        assert float(values[f'scope_stage_duration_seconds_count{{stage="{stage}"}}']) > 0
    assert float(values['scope_stage_duration_seconds_sum{stage="engine"}']) > 0
    # vLLM also counts the prompts of the warm-up and of the service's own checks.
    tokens = float(values['scope_key_prompt_tokens_total{key="anonymous"}'])
    read = [float(v) for k, v in values.items() if k.startswith("vllm:prompt_tokens_total{")]
    compared = float(values['scope_key_comparisons_total{key="anonymous"}'])
    assert 20 * compared < tokens < sum(read)


def test_a_prompt_over_the_context_is_an_error_and_never_cut(demo_server: Server) -> None:
    long = PAIR | {"response_b": "1" * 3000}
    answer = demo_server.client.post("/judge", json=long)
    assert answer.status_code == 413
    assert answer.json()["code"] == "prompt_too_long"
    results = demo_server.client.post("/judge/batch", json={"comparisons": [long, PAIR]}).json()
    assert results["results"][0]["error"]["code"] == "prompt_too_long"
    assert results["results"][1]["verdict"] == "A"


def test_a_client_that_leaves_cancels_its_work(demo_server: Server) -> None:
    unique = iter(range(10**9))

    def batch(size: int) -> dict[str, object]:
        return {
            "alpha": None,
            "comparisons": [
                {"question": f"{next(unique)} " * 100, "response_a": "a", "response_b": "b"}
                for _ in range(size)
            ],
        }

    begun = time.monotonic()
    assert demo_server.client.post("/judge/batch", json=batch(100)).status_code == 200
    whole_s = time.monotonic() - begun

    def leave() -> None:
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{demo_server.url}/judge/batch", json=batch(500), timeout=whole_s / 4)

    leaver = threading.Thread(target=leave)
    leaver.start()
    leaver.join()
    begun = time.monotonic()
    assert demo_server.client.post("/judge/batch", json=batch(1)).status_code == 200
    # All 500 comparisons would have taken five times `whole_s`.
    assert time.monotonic() - begun < 3 * whole_s


def test_a_batch_does_not_delay_single_judgments(demo_server: Server) -> None:
    # The largest batch, so that it takes longer than three singles on a busy machine, too.
    some = demo_sets().fresh[:1000]
    assert len(some) == 1000
    batch = [
        {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
        for p in some
    ]
    answered: dict[str, float] = {}

    def post_batch() -> None:
        answer = demo_server.client.post("/judge/batch", json={"comparisons": batch})
        assert answer.status_code == 200
        answered["batch"] = time.monotonic()

    begun = time.monotonic()
    posting = threading.Thread(target=post_batch)
    posting.start()
    # Wait for the batch: it has its slots as soon as the metrics count them.
    counted = "scope_pending_comparisons 1000.0"
    wait_until(lambda: counted in demo_server.client.get("/metrics").text)
    waited = []
    for _ in range(3):
        asked = time.monotonic()
        assert demo_server.client.post("/judge", json=PAIR).status_code == 200
        waited.append(time.monotonic() - asked)
    answered["singles"] = time.monotonic()
    posting.join(PATIENCE_S)
    assert answered["singles"] < answered["batch"]
    print(f"singles after {waited} s, the batch after {answered['batch'] - begun:.2f} s")
