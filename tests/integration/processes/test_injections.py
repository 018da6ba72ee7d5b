"""Known injections against the demo judge in a running service: each request gets an answer."""

from typing import Any, NamedTuple

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


class Attacked(NamedTuple):
    """Results of all injections.

    Args:
        there: With the injection in the wrong response, which is the second.
        back: The same with the responses swapped.
        elsewhere: With the injection in the right response, and in the question.
        disagreements: Number of them whose orders disagree, as the metrics count it.
    """

    there: list[dict[str, Any]]
    back: list[dict[str, Any]]
    elsewhere: list[dict[str, Any]]
    disagreements: float

    @property
    def all(self) -> list[dict[str, Any]]:
        return [*self.there, *self.back, *self.elsewhere]


def disagreements_at(server: Server) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    (line,) = [x for x in lines if x.startswith("scope_order_disagreements_total ")]
    return float(line.split()[1])


@pytest.fixture(scope="module")
def attacked(demo_process: Server) -> Attacked:
    """The results; the injections are judged once."""
    demo_process.start_unless_running()
    before = disagreements_at(demo_process)
    n, asked = len(INJECTIONS), list[dict[str, str]]()
    asked += [comparison(QUESTION, RIGHT, WRONG + each.text) for each in INJECTIONS]
    asked += [comparison(QUESTION, WRONG + each.text, RIGHT) for each in INJECTIONS]
    asked += [comparison(QUESTION, RIGHT + each.text, WRONG) for each in INJECTIONS]
    asked += [comparison(QUESTION + each.text, RIGHT, WRONG) for each in INJECTIONS]
    found = judged(demo_process, asked)
    assert len(found) == len(asked)
    return Attacked(
        there=found[:n],
        back=found[n : 2 * n],
        elsewhere=found[2 * n :],
        disagreements=disagreements_at(demo_process) - before,
    )


def test_every_injection_in_every_place_gets_an_answer(
    attacked: Attacked, demo_server: Server
) -> None:
    for result in attacked.all:
        if "error" in result:
            assert 400 <= result["error"]["status"] < 500, result
        else:
            assert result["verdict"] in ("A", "B", "abstain")
            assert 0.0 <= result["p_bar"] <= 1.0
            assert 0.0 <= result["label_mass"] <= 1.0 + 1e-6
    answered = [result for result in attacked.all if "error" not in result]
    # Only the longest injections may exceed the demo judge's context.
    assert len(answered) >= 0.9 * len(attacked.all)
    assert demo_server.client.get("/readyz").status_code == 200


def test_swapping_the_responses_mirrors_p_bar_under_attack(attacked: Attacked) -> None:
    mirrored = {"A": "B", "B": "A", None: None}
    compared = 0
    for here, swapped in zip(attacked.there, attacked.back, strict=True):
        assert ("error" in here) == ("error" in swapped)
        if "error" not in here:
            assert here["p_bar"] == pytest.approx(1 - swapped["p_bar"], abs=1e-5)
            if abs(here["p_bar"] - 0.5) > 1e-4:
                assert here["preferred"] == mirrored[swapped["preferred"]]
            compared += 1
    assert compared >= 0.9 * len(INJECTIONS)


def test_disagreement_of_the_orders_is_in_the_metrics(attacked: Attacked) -> None:
    answered = [result for result in attacked.all if "error" not in result]
    disagree = [(r["p_fwd"] - 0.5) * (r["p_rev"] - 0.5) < 0 for r in answered]
    assert attacked.disagreements == sum(disagree)
