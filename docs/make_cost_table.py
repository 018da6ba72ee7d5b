"""Prints the tables of docs/measured/cost.md: an estimate from FLOPs of what A100s serve and cost.

Usage: python docs/make_cost_table.py
"""

import math
from typing import NamedTuple

# NVIDIA's data sheet: bfloat16, dense, in FLOP/s.
PEAK = 312e12
# Assumptions, none of them measured here: share of the peak that vLLM reaches while it reads
# prompts, and while it writes with many requests at once; dollars for an A100 hour.
READING, WRITING, DOLLARS = 0.5, 0.2, 2.0
# Tokens of an MT-Bench pair: what both orders begin with (system message, question), and the rest.
SHARED, RESPONSES = 300, 700
THOUGHT = 300


class Judge(NamedTuple):
    """A judge of the paper: billions of parameters, and GPUs that share it."""

    name: str
    billions: float
    gpus: int


JUDGES = (
    Judge("Qwen2.5-7B-Instruct", 7.6, 1),
    Judge("Skywork-Critic-Llama-3.1-8B", 8.0, 1),
    Judge("Qwen2.5-14B-Instruct", 14.8, 1),
    Judge("Qwen2.5-32B-Instruct", 32.8, 2),
    Judge("Llama-3.1-70B-Instruct", 70.6, 4),
)


def gpu_seconds(judge: Judge, read: int, written: int) -> float:
    """GPU seconds of one judgment: two FLOPs for each parameter and token, attention left out."""
    flops = 2 * judge.billions * 1e9
    return flops * (read / READING + written / WRITING) / PEAK


def main() -> None:
    """Prints both tables."""
    print_costs()
    print()
    print_rates()


def print_costs() -> None:
    """Prints what 1,000 judgments cost, one row a judge."""
    ways = {
        "both orders, label only": (SHARED + 2 * RESPONSES, 0),
        "one order, 300 tokens of thought": (SHARED + RESPONSES, THOUGHT),
        "both orders, 300 tokens each": (SHARED + 2 * RESPONSES, 2 * THOUGHT),
    }
    print("| judge | GPUs |", " | ".join(ways), "|")
    print("|---|---|" + "---|" * len(ways))
    for judge in JUDGES:
        cells = []
        for read, written in ways.values():
            hours = 1000 * gpu_seconds(judge, read, written) / 3600
            cells.append(f"{hours:.3f} GPU h, ${hours * DOLLARS:.2f}")
        print(f"| {judge.name} | {judge.gpus} |", " | ".join(cells), "|")


def print_rates() -> None:
    """Prints judgments a second of one replica and replicas for 1M an hour, one row a judge."""
    lengths = {"short": 0.3, "MT-Bench": 1.0, "long": 3.0}
    heads = [f"{name}: {SHARED + RESPONSES * x:.0f} tokens" for name, x in lengths.items()]
    print("| judge | GPUs a replica |", " | ".join(heads), "| GPUs for 1M an hour, MT-Bench |")
    print("|---|---|" + "---|" * (len(heads) + 1))
    for judge in JUDGES:
        rates = [
            judge.gpus / gpu_seconds(judge, round(SHARED + 2 * RESPONSES * x), 0)
            for x in lengths.values()
        ]
        replicas = math.ceil(1e6 / 3600 / rates[1])
        cells = " | ".join(f"{rate:.1f}/s" for rate in rates)
        print(f"| {judge.name} | {judge.gpus} | {cells} | {replicas * judge.gpus} |")


if __name__ == "__main__":
    main()
