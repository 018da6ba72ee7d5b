"""The paper's numbers, found by our names; the expected values were copied by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.comparison import Comparison
from app.evaluation import paper
from app.evaluation.metrics import Quality
from app.evaluation.paper import PaperOutcome
from app.judges.prompts import load_template

TABLES = json.loads(Path(paper.__file__).with_name("paper_tables.json").read_text())
QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
# Our names by the paper's names, written independently of the code.
DATASETS = {
    "MT-Bench": "mt-bench",
    "RewardBench": "reward-bench",
    "Chatbot Arena": "chatbot-arena",
    "Arena": "chatbot-arena",
    "JudgeBench": "judge-bench",
    "PKU-SafeRLHF": "pku-safe-rlhf",
}
METHODS = {
    "Predictive Probability": "predictive_probability",
    "Verbalized Confidence": "verbalized_confidence",
    "Swap-and-Aggregate": "swap_and_aggregate",
    "Simulated Annotators": "simulated_annotators",
    "Self-Consistency (k{=}5)": "self_consistency",
    "BPE (Ours)": "bpe",
    "BPE": "bpe",
    "ToE (SimAnnot-Maj)": "trust_or_escalate",
    "SCOPE (Ours)": "scope",
}
SIGNALS = {
    "vanilla": "predictive_probability",
    "heuristic": "predictive_probability",
    "naive": "predictive_probability",
    "trust_or_escalate": "simulated_annotators",
    "scope": "bpe",
}


def rows(*tables: str) -> list[dict[str, Any]]:
    found = [
        dict(zip(TABLES[table]["columns"], row, strict=True))
        for table in tables
        for row in TABLES[table]["rows"]
    ]
    assert found
    return found


def outcome(judge: str, dataset: str, selector: str) -> PaperOutcome | None:
    return paper.outcome(judge, dataset, selector, signal=SIGNALS[selector], alpha=0.10)


def test_every_table_names_its_table_in_the_paper() -> None:
    assert TABLES["source"].keys() - {"paper"} == TABLES.keys() - {"source"}
    assert "ICML 2026" in paper.source()


def test_every_row_on_uncertainty_is_found() -> None:
    tables = ("uncertainty", "uncertainty_extended", "skywork_uncertainty", "self_consistency")
    for row in rows(*tables, "simulated_annotators"):
        found = paper.quality(row["judge"], DATASETS[row["dataset"]], METHODS[row["method"]])
        assert found is not None
        assert found[1:] == (row["ece"], row["auroc"], row["auprc"])
        assert found.accuracy == row.get("accuracy", found.accuracy)


def test_every_row_on_risk_is_found() -> None:
    for row in rows("risk_coverage", "risk_coverage_extended", "skywork_risk"):
        selector = row.get("selector", "SCOPE").lower()
        found = outcome(row["judge"], DATASETS[row["dataset"]], selector)
        assert found == PaperOutcome(
            coverage=row["coverage"],
            risk=row["risk"],
            coverage_std=row.get("coverage_std"),
            risk_std=row.get("risk_std"),
        )


def test_the_ten_coverages_of_the_text_are_found() -> None:
    printed = {
        (QWEN_7B, "mt-bench"): {0.05: 0.018, 0.15: 0.556, 0.20: 0.802, 0.25: 0.991},
        ("Llama-3.1-70B-Instruct", "mt-bench"): {0.05: 0.072, 0.15: 0.790, 0.2: 0.95, 0.25: 1.0},
        (QWEN_7B, "chatbot-arena"): {0.05: 0.052, 0.25: 0.998},
    }
    assert len(rows("coverage_by_alpha")) == sum(map(len, printed.values())) == 10
    for (judge, dataset), coverages in printed.items():
        for alpha, coverage in coverages.items():
            found = paper.outcome(judge, dataset, "scope", signal="bpe", alpha=alpha)
            assert found == PaperOutcome(coverage=coverage, risk=None)


def test_every_row_of_the_ablations_is_found() -> None:
    for row in rows("label_noise"):
        noisy = paper.label_noise(row["judge"], DATASETS[row["dataset"]], row["epsilon"])
        assert noisy == PaperOutcome(coverage=row["coverage"], risk=row["risk"])
    for row in rows("calibration_size"):
        sized = paper.calibration_size(row["judge"], DATASETS[row["dataset"]], row["n"])
        assert sized == PaperOutcome(coverage=row["coverage"], risk=row["risk"])
    for row in rows("cross_benchmark"):
        names = (DATASETS[row["calibration"]], DATASETS[row["test"]])
        assert paper.transfer(row["judge"], *names) == PaperOutcome(
            coverage=row["coverage"], risk=row["risk"]
        )


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
    assert skywork == PaperOutcome(coverage=0.996, risk=0.094, coverage_std=0.008, risk_std=0.008)
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


def test_a_rule_has_numbers_on_the_papers_signal_only() -> None:
    for selector, signal in SIGNALS.items():
        others = {*METHODS.values()} - {signal}
        for other in others:
            found = paper.outcome(QWEN_7B, "mt-bench", selector, signal=other, alpha=0.10)
            assert found is None
        assert outcome(QWEN_7B, "mt-bench", selector) is not None


@pytest.mark.parametrize("extended", ["judge-bench", "pku-safe-rlhf"])
def test_alphas_go_as_far_as_in_the_papers_figure(extended: str) -> None:
    assert paper.alphas(["mt-bench", "reward-bench", "chatbot-arena", "mine"])[-1] == 0.25
    assert paper.alphas(["mt-bench", extended]) == (0.05, 0.10, 0.15, 0.20, 0.25, 0.30)


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
