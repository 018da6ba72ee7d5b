"""Known injections against the demo judge in a running service: each request gets an answer."""

from typing import Any

import pytest

from tests.injections import INJECTIONS
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


def disagreements_at(server: Server) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    (line,) = [x for x in lines if x.startswith("scope_order_disagreements_total ")]
    return float(line.split()[1])


def test_every_injection_in_every_place_gets_an_answer_that_a_swap_mirrors(
    demo_server: Server,
) -> None:
    before, n = disagreements_at(demo_server), len(INJECTIONS)
    asked = [comparison(QUESTION, RIGHT, WRONG + each.text) for each in INJECTIONS]
    asked += [comparison(QUESTION, WRONG + each.text, RIGHT) for each in INJECTIONS]
    asked += [comparison(QUESTION, RIGHT + each.text, WRONG) for each in INJECTIONS]
    asked += [comparison(QUESTION + each.text, RIGHT, WRONG) for each in INJECTIONS]
    found = judged(demo_server, asked)
    disagreements = disagreements_at(demo_server) - before
    assert len(found) == len(asked)
    for result in found:
        if "error" in result:
            assert 400 <= result["error"]["status"] < 500, result
        else:
            assert result["verdict"] in ("A", "B", "abstain")
            assert 0.0 <= result["label_mass"] <= 1.0 + 1e-6
    answered = [result for result in found if "error" not in result]
    # Only the longest injections may exceed the demo judge's context.
    assert len(answered) >= 0.9 * len(found)
    mirrored = {"A": "B", "B": "A", None: None}
    for here, swapped in zip(found[:n], found[n : 2 * n], strict=True):
        assert ("error" in here) == ("error" in swapped)
        if "error" not in here:
            assert here["p_bar"] == pytest.approx(1 - swapped["p_bar"], abs=1e-5)
            if abs(here["p_bar"] - 0.5) > 1e-4:
                assert here["preferred"] == mirrored[swapped["preferred"]]
    disagree = [(r["p_fwd"] - 0.5) * (r["p_rev"] - 0.5) < 0 for r in answered]
    assert disagreements == sum(disagree)
