"""The paper's numbers, found by our names; the expected values were copied by hand."""

from pathlib import Path

import pytest

from app.core.comparison import Comparison
from app.evaluation import paper
from app.evaluation.metrics import Quality
from app.evaluation.paper import PaperOutcome
from app.judges.prompts import load_template

QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
SIGNALS = {
    "vanilla": "predictive_probability",
    "heuristic": "predictive_probability",
    "naive": "predictive_probability",
    "trust_or_escalate": "simulated_annotators",
    "scope": "bpe",
}


def outcome(judge: str, dataset: str, selector: str) -> PaperOutcome | None:
    return paper.outcome(judge, dataset, selector, signal=SIGNALS[selector], alpha=0.10)


def test_numbers_are_those_printed_in_the_paper() -> None:
    assert paper.quality(QWEN_7B, "mt-bench", "bpe") == Quality(
        accuracy=0.738, ece=0.143, auroc=0.685, auprc=0.855
    )
    annotators = paper.quality(QWEN_7B, "mt-bench", "simulated_annotators")
    assert annotators == Quality(accuracy=None, ece=0.174, auroc=0.594, auprc=0.790)
    assert paper.quality(QWEN_7B, "reward-bench", "self_consistency") == Quality(
        accuracy=0.896, ece=0.197, auroc=0.426, auprc=0.886
    )
    assert outcome(QWEN_7B, "mt-bench", "scope") == PaperOutcome(coverage=0.246, risk=0.097)
    assert outcome(QWEN_7B, "mt-bench", "trust_or_escalate") == PaperOutcome(
        coverage=0.226, risk=None
    )
    skywork = outcome("Skywork/Skywork-Critic-Llama-3.1-8B", "reward-bench", "scope")
    assert skywork == PaperOutcome(coverage=0.996, risk=0.094)
    assert paper.label_noise(QWEN_7B, "chatbot-arena", 0.05) == PaperOutcome(
        coverage=0.136, risk=0.048
    )
    assert paper.calibration_size(QWEN_7B, "chatbot-arena", 50) == PaperOutcome(
        coverage=0.259, risk=0.062
    )
    moved = paper.transfer("Qwen/Qwen2.5-32B-Instruct", "reward-bench", "mt-bench")
    assert moved == PaperOutcome(coverage=0.980, risk=0.193)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen2.5-7B-Instruct",
        "qwen/qwen2.5-7b-instruct",
        "/models/Qwen2.5-7B-Instruct/",
    ],
)
def test_a_judge_is_found_by_the_last_part_of_its_name(name: str) -> None:
    assert paper.paper_judge(name) == "Qwen2.5-7B-Instruct"


# The second is quantised and the third is the base model: neither is a judge of the paper.
@pytest.mark.parametrize(
    "name", [None, "Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B", "Qwen2.5-7B", "demo", ""]
)
def test_another_judge_has_no_numbers(name: str | None) -> None:
    assert paper.paper_judge(name) is None
    assert paper.quality(name, "mt-bench", "bpe") is None
    assert paper.outcome(name, "mt-bench", "scope", signal="bpe", alpha=0.10) is None
    assert paper.label_noise(name, "mt-bench", 0.05) is None
    assert paper.calibration_size(name, "mt-bench", 50) is None
    assert paper.transfer(name, "mt-bench", "mt-bench") is None


def test_the_prompt_of_the_critic_is_that_of_its_model_card() -> None:
    file = Path(__file__).parents[3] / "docs/measured/skywork-critic.toml"
    template = load_template(file, prefill="[[")
    prompt = template.render(Comparison.of("Why?", "Yes {x}.", "No."))
    assert (prompt.system, prompt.prefill) == ("", "[[")
    # The line breaks of its model card, with the spaces before them.
    assert "answers the user's question better. \nYour evaluation should" in prompt.user
    assert "Be as objective as possible. \nPlease directly output your final verdict" in prompt.user
    assert prompt.user.endswith(
        "[User Question]\nWhy?\n\n"
        "[The Start of Assistant A's Answer]\nYes {x}.\n[The End of Assistant A's Answer]\n\n"
        "[The Start of Assistant B's Answer]\nNo.\n[The End of Assistant B's Answer]\n"
    )
