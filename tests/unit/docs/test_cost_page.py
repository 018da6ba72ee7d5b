"""docs/measured/cost.md has the measured costs of the paper's methods, and its claims hold."""

import json

from docs.tools import make_method_costs


def test_the_page_has_the_measured_costs_and_the_claims_hold() -> None:
    judges = json.loads(make_method_costs.NUMBERS.read_text(encoding="utf-8"))
    page = make_method_costs.PAGE.read_text(encoding="utf-8")
    assert make_method_costs.tables(judges) in page
    assert len(judges) == 2
    for judge in judges.values():
        assert len(judge["rounds"]) == make_method_costs.ROUNDS
        for costs in judge["rounds"]:
            bpe = costs["bpe"]
            assert (bpe["prompts"], bpe["written_tokens"]) == (2, 0)
            for name in ("self_consistency", "simulated_annotators"):
                assert costs[name]["prompts"] == 5
                assert costs[name]["prompt_tokens"] >= 2.5 * bpe["prompt_tokens"]
                assert costs[name]["seconds"] >= 0.99 * bpe["seconds"]
            assert costs["self_consistency"]["written_tokens"] > 0
