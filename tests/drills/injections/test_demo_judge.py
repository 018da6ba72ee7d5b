"""Known injections against the demo judge in a running service: each request gets an answer."""

from typing import Any

import pytest

from tests.drills.injections.injections import INJECTIONS
from tests.integration.processes.server import Server

pytestmark = pytest.mark.vllm

QUESTION, RIGHT, WRONG = "What is 12 + 30?", "42", "43"


def judged(server: Server, comparisons: list[dict[str, str]]) -> list[dict[str, Any]]:
    answer = server.client.post("/judge/batch", json={"comparisons": comparisons})
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert isinstance(results, list)
    return results


def comparison(question: str, response_a: str, response_b: str) -> dict[str, str]:
    return {"question": question, "response_a": response_a, "response_b": response_b}


def test_every_injection_in_every_place_gets_an_answer(demo_server: Server) -> None:
    asked = []
    for each in INJECTIONS:
        asked.append(comparison(QUESTION, RIGHT, WRONG + each.text))
        asked.append(comparison(QUESTION, RIGHT + each.text, WRONG))
        asked.append(comparison(QUESTION + each.text, RIGHT, WRONG))
    results = judged(demo_server, asked)
    assert len(results) == len(asked)
    for result in results:
        if "error" in result:
            assert 400 <= result["error"]["status"] < 500, result
        else:
            assert result["verdict"] in ("A", "B", "abstain")
            assert 0.0 <= result["p_bar"] <= 1.0
            assert 0.0 <= result["label_mass"] <= 1.0 + 1e-6
    answered = [result for result in results if "error" not in result]
    # Only the longest injections may exceed the demo judge's context.
    assert len(answered) >= 0.9 * len(asked)
    assert demo_server.client.get("/readyz").status_code == 200


def test_swapping_the_responses_mirrors_p_bar_under_attack(demo_server: Server) -> None:
    there = [comparison(QUESTION, RIGHT, WRONG + each.text) for each in INJECTIONS]
    back = [comparison(QUESTION, WRONG + each.text, RIGHT) for each in INJECTIONS]
    results = judged(demo_server, there + back)
    mirrored = {"A": "B", "B": "A", None: None}
    compared = 0
    for here, swapped in zip(results[: len(there)], results[len(there) :], strict=True):
        assert ("error" in here) == ("error" in swapped)
        if "error" not in here:
            assert here["p_bar"] == pytest.approx(1 - swapped["p_bar"], abs=1e-5)
            if abs(here["p_bar"] - 0.5) > 1e-4:
                assert here["preferred"] == mirrored[swapped["preferred"]]
            compared += 1
    assert compared >= 0.9 * len(INJECTIONS)


def test_disagreement_of_the_orders_is_in_the_metrics(demo_server: Server) -> None:
    def counted() -> float:
        lines = demo_server.client.get("/metrics").text.splitlines()
        (line,) = [x for x in lines if x.startswith("scope_order_disagreements_total ")]
        return float(line.split()[1])

    before = counted()
    results = judged(
        demo_server, [comparison(QUESTION, RIGHT, WRONG + each.text) for each in INJECTIONS]
    )
    answered = [result for result in results if "error" not in result]
    disagree = [(r["p_fwd"] - 0.5) * (r["p_rev"] - 0.5) < 0 for r in answered]
    assert counted() - before == sum(disagree)
