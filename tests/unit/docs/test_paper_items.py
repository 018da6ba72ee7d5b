"""docs/measured/reproduce.md has every item of the paper that is different here, or was not run."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "measured" / "reproduce.md"
# Methods, parameters, prompts, data, judges, protocol, metrics, ablations, tables, figures and
# efficiency, in the order in which the paper's parts first name them: first those that are the same
# here, which the page does not list.
SAME = """
p_fwd and p_rev
p_bar, the mean of both orders
binary entropy of p_bar as uncertainty
BPE as a confidence, max(p_bar, 1 - p_bar)
softmax over the two labels only
temperature 0
false discovery rate of the accepted
linearised loss
finite-sample condition
minus infinity where nothing is feasible
Predictive Probability
Vanilla
alpha 0.05 to 0.25
alpha up to 0.30 on two data sets
5 personas
5 demonstrations for each
5 samples
sampling temperature 0.7
reverse prompt
Chatbot Arena
ties left out
a random half to calibrate on
1,000 seeded splits
500 splits for ablations
mean and standard deviation over splits
right where the side is the label
accuracy
AUROC
empirical risk
coverage
label noise of 0 to 20%
50 to 1,000 calibration pairs
""".strip().splitlines()
OTHERS = """
the preferred side, from p_bar
logits of the first answered token
largest feasible threshold
theorem: the ratio is at most alpha
Verbalized Confidence
Swap-and-Aggregate
Simulated Annotators
Self-Consistency
Heuristic
Naive
Trust-or-Escalate
delta of Trust-or-Escalate
pool of 50 examples
prompt for pairs
prompt for a confidence
prompt of annotators
MT-Bench
RewardBench
JudgeBench
PKU-SafeRLHF
2,000 pairs at random
random order of the responses
Qwen2.5-7B-Instruct
Qwen2.5-14B-Instruct
Qwen2.5-32B-Instruct
Llama-3.1-70B-Instruct
Skywork-Critic-Llama-3.1-8B
transformers on two A100
ECE of 10 bins
AUPRC
transfer between data sets
all tables and figures of results
two passes instead of five samples
""".strip().splitlines()


def section() -> str:
    """The section of the page, to the next heading."""
    text = PAGE.read_text(encoding="utf-8").partition("## Differences from the paper")[2]
    return text.partition("\n## ")[0]


def not_run() -> list[str]:
    """The items of the paragraph that lists what was not run."""
    text = section().partition("\n\nNot run")[2].partition("\n\n")[0]
    return " ".join(text.split()).partition(": ")[2].removesuffix(".").split("; ")


def different() -> list[list[str]]:
    """The rows of the table: item, and how it differs here."""
    lines = re.findall(r"^\|.*$", section(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_item_of_the_paper_that_is_not_the_same_is_on_the_page() -> None:
    rows = different()
    assert all(here for _, here in rows)
    assert sorted([*not_run(), *(item for item, _ in rows)]) == sorted(OTHERS)
    assert Counter([*SAME, *OTHERS]).most_common(1)[0][1] == 1
