"""Writes the tables of docs/measured/cost.md: what A100s serve and cost, estimated from FLOPs.

Usage: python -m docs.tools.make_cost_table

A judge whose speed `make gpu` has measured has the measured speed instead (docs/measured/gpu.json).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from tests.drills.gpu.record import FILE, Record
from tests.drills.running import MEASURED
from tests.markdown import put_between_markers, table

PAGE = MEASURED / "cost.md"

# NVIDIA's data sheet: bfloat16, dense, in FLOP/s.
PEAK = 312e12
# Assumptions, none of them measured here: share of the peak that vLLM reaches while it reads
# prompts, and while it writes with many requests at once; dollars for an A100 hour.
READING, WRITING, DOLLARS = 0.5, 0.2, 2.0
# Tokens of an MT-Bench pair: what both orders begin with (system message, question), and the rest.
SHARED, RESPONSES = 300, 700
THOUGHT = 300


class Judge(NamedTuple):
    """A judge of the paper: billions of parameters, GPUs that share it, shape in `make gpu`."""

    name: str
    billions: float
    gpus: int
    shape: str | None = None


JUDGES = (
    Judge("Qwen2.5-7B-Instruct", 7.6, 1, "7B"),
    Judge("Skywork-Critic-Llama-3.1-8B", 8.0, 1),
    Judge("Qwen2.5-14B-Instruct", 14.8, 1, "14B"),
    Judge("Qwen2.5-32B-Instruct", 32.8, 2, "32B"),
    Judge("Llama-3.1-70B-Instruct", 70.6, 4),
)


class Speed(NamedTuple):
    """Speed of a judge on one GPU, and the judge's name with the GPU if the speed was measured."""

    name: str
    reading_tokens_per_s: float
    writing_tokens_per_s: float

    @classmethod
    def of(cls, judge: Judge, record: Record) -> "Speed":
        """Two FLOPs for each parameter and token, attention left out; or as measured."""
        flops = 2 * judge.billions * 1e9
        measured = record.read_tokens_per_s(judge.shape) if judge.shape else None
        return cls(
            name=f"{judge.name}, measured on {record.gpu_name}" if measured else judge.name,
            reading_tokens_per_s=measured or READING * PEAK / flops,
            writing_tokens_per_s=WRITING * PEAK / flops,
        )

    def gpu_seconds(self, read: int, written: int) -> float:
        """GPU seconds of one judgment."""
        return read / self.reading_tokens_per_s + written / self.writing_tokens_per_s


def tables(record: Record) -> tuple[str, str]:
    """Both tables in Markdown: costs, and judgments a second."""
    return _costs(record), _rates(record)


def _costs(record: Record) -> str:
    """Cost of 1,000 judgments, one row a judge."""
    ways = {
        "both orders, label only": (SHARED + 2 * RESPONSES, 0),
        "one order, 300 tokens of thought": (SHARED + RESPONSES, THOUGHT),
        "both orders, 300 tokens each": (SHARED + 2 * RESPONSES, 2 * THOUGHT),
    }

    def rows() -> Iterator[list[str]]:
        for judge in JUDGES:
            speed = Speed.of(judge, record)
            hours = [1000 * speed.gpu_seconds(*way) / 3600 for way in ways.values()]
            cells = [f"{each:.3f} h, ${each * DOLLARS:.2f}" for each in hours]
            yield [speed.name, str(judge.gpus), *cells]

    return table(("judge", "GPUs", *ways), [*rows()])


def _rates(record: Record) -> str:
    """Judgments a second of one replica and GPUs for 1M an hour, one row a judge."""
    lengths = {"short": 0.3, "MT-Bench": 1.0, "long": 3.0}
    heads = [f"{name}: {SHARED + RESPONSES * x:.0f} tokens" for name, x in lengths.items()]

    def rows() -> Iterator[list[str]]:
        for judge in JUDGES:
            speed = Speed.of(judge, record)
            rates = [
                judge.gpus / speed.gpu_seconds(round(SHARED + 2 * RESPONSES * x), 0)
                for x in lengths.values()
            ]
            replicas = math.ceil(1e6 / 3600 / rates[1])
            cells = [f"{rate:.1f}/s" for rate in rates]
            yield [speed.name, str(judge.gpus), *cells, str(replicas * judge.gpus)]

    return table(("judge", "GPUs a replica", *heads, "GPUs for 1M an hour, MT-Bench"), [*rows()])


def write(record: Record) -> None:
    """Writes both tables into the page."""
    for name, text in zip(("costs", "rates"), tables(record), strict=True):
        put_between_markers(name, text, PAGE)


if __name__ == "__main__":
    write(Record(FILE))
