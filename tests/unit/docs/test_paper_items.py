"""docs/measured/reproduce.md accounts for every item of the paper."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "measured" / "reproduce.md"
PAPER = ROOT.parent / "shared" / "paper" / "scope.tex"
STATUSES = {"stated difference", "not run"}
# Methods, parameters, prompts, data, judges, protocol, metrics, ablations, tables, figures and
# efficiency, in the order in which the paper's parts first name them.
ITEMS = """
p_fwd and p_rev
p_bar, the mean of both orders
the preferred side, from p_bar
binary entropy of p_bar as uncertainty
BPE as a confidence, max(p_bar, 1 - p_bar)
softmax over the two labels only
logits of the first answered token
temperature 0
false discovery rate of the accepted
linearised loss
finite-sample condition
largest feasible threshold
minus infinity where nothing is feasible
theorem: the ratio is at most alpha
Predictive Probability
Verbalized Confidence
Swap-and-Aggregate
Simulated Annotators
Self-Consistency
Vanilla
Heuristic
Naive
Trust-or-Escalate
alpha 0.05 to 0.25
alpha up to 0.30 on two data sets
delta of Trust-or-Escalate
5 personas
5 demonstrations for each
pool of 50 examples
5 samples
sampling temperature 0.7
prompt for pairs
reverse prompt
prompt for a confidence
prompt of annotators
MT-Bench
RewardBench
Chatbot Arena
JudgeBench
PKU-SafeRLHF
ties left out
2,000 pairs at random
random order of the responses
Qwen2.5-7B-Instruct
Qwen2.5-14B-Instruct
Qwen2.5-32B-Instruct
Llama-3.1-70B-Instruct
Skywork-Critic-Llama-3.1-8B
transformers on two A100
a random half to calibrate on
1,000 seeded splits
500 splits for ablations
mean and standard deviation over splits
right where the side is the label
accuracy
ECE of 10 bins
AUROC
AUPRC
empirical risk
coverage
label noise of 0 to 20%
50 to 1,000 calibration pairs
transfer between data sets
table of five methods
table of Simulated Annotators
table of four rules
table of two more data sets
table of their risk
table of Self-Consistency
table of Trust-or-Escalate
tables of Skywork-Critic
table of its risk
table of label noise
table of calibration sizes
table of transfer
figures of coverage and of risk
two passes instead of five samples
""".strip().splitlines()


def section() -> str:
    """The section of the page, to the next heading."""
    text = PAGE.read_text(encoding="utf-8").partition("## Every item of the paper")[2]
    return text.partition("\n## ")[0]


def same_items() -> list[str]:
    """The items that are as in the paper."""
    listed = section().partition("Same as in the paper: ")[2].partition("\n\n")[0]
    return " ".join(listed.split()).removesuffix(".").split("; ")


def rows() -> list[list[str]]:
    """The rows of the table: item, place in the paper, ours, status."""
    lines = re.findall(r"^\|.*$", section(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_item_of_the_paper_is_the_same_or_has_a_row_with_a_status() -> None:
    table = rows()
    assert sorted([*same_items(), *(item for item, *_ in table)]) == sorted(ITEMS)
    assert {status for *_, status in table} == STATUSES
    assert Counter(ITEMS).most_common(1)[0][1] == 1


def test_the_files_that_the_rows_name_exist() -> None:
    named = {path for _, _, ours, _ in rows() for path in re.findall(r"`(app/[\w/.]+)`", ours)}
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's source is not here")
def test_the_places_that_the_rows_name_are_in_the_paper() -> None:
    source = PAPER.read_text(encoding="utf-8")
    places = {place.strip("`") for _, place, *_ in rows()} - {"not printed"}
    missing = [
        place
        for place in places
        if f"label{{{place}}}" not in source and f"section{{{place}}}" not in source
    ]
    assert missing == []
