"""`scope-judge evaluate` on vLLM with the demo judge."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.core.preference import preference_from_gaps
from app.evaluation.benchmarks.catalogue import load_benchmark
from app.evaluation.judgments.jsonl import read_judgments
from tests.judgment_files import DATA

pytestmark = [
    pytest.mark.vllm,
    # `make test` has the answers in words of vLLM, and whole runs of the scripted judge.
    pytest.mark.long,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

PAIRS = 20
TOO_LONG = "too-long"


class Evaluated(NamedTuple):
    """A finished run.

    Args:
        out: Its folder.
        output: Its output on one line.
    """

    out: Path
    output: str

    @property
    def log(self) -> Path:
        return self.out / "judgments.jsonl"

    @property
    def results(self) -> dict[str, Any]:
        (found,) = json.loads((self.out / "results.json").read_text())["datasets"]
        return dict(found)

    def method(self, name: str) -> dict[str, Any]:
        return next(found for found in self.results["methods"] if found["method"] == name)


def evaluate(*arguments: str) -> Result:
    environment = {"COLUMNS": "200", "SCOPE_ENGINE": "vllm"}
    return CliRunner().invoke(app, ["evaluate", *arguments], env=environment)


def rows() -> Iterator[dict[str, str]]:
    """Short labeled pairs, and one that is longer than the judge's context."""
    # A data set that is not in this repository, else the demo judge's pairs.
    source = DATA / "llmbar_case__GPT-4_prompt-ensemble.jsonl.gz"
    pairs = load_benchmark(str(source) if source.exists() else "demo").pairs
    for pair in sorted(pairs, key=lambda each: sum(map(len, each.comparison.texts)))[:PAIRS]:
        question, a, b = pair.comparison.texts
        yield {
            **{"id": pair.id, "question": question, "response_a": a, "response_b": b},
            "label": pair.label,
        }
    long = "one more word " * 10_000
    yield {"id": TOO_LONG, "question": long, "response_a": "a", "response_b": "b", "label": "A"}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    folder = tmp_path_factory.mktemp("evaluation")
    file, out = folder / "short.jsonl", folder / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    result = evaluate(str(file), "--judge", "demo", "--out", str(out), "--splits", "50")
    assert result.exit_code == 0, result.output
    return Evaluated(out, " ".join(result.output.split()))


def test_every_pair_is_judged_or_counted_as_failed(evaluated: Evaluated) -> None:
    assert {file.name for file in evaluated.out.iterdir()} == {
        "judgments.jsonl",
        "results.json",
        "report.md",
        "tables",
        "figures",
    }
    pairs = {pair.id: pair for pair in read_judgments([evaluated.log]).pairs}
    too_long = pairs.pop(TOO_LONG)
    assert len(pairs) == PAIRS
    assert all(pair.gaps is not None and not pair.failed for pair in pairs.values())
    assert too_long.gaps is None
    assert set((too_long.failed or {}).values()) == {"prompt_too_long"}
    bpe, spoken = evaluated.method("bpe"), evaluated.method("verbalized_confidence")
    assert (bpe["n"], bpe["unparsed"], bpe["failed"]) == (PAIRS, 0, 1)
    # An answer in words that names no winner or no confidence is no verdict.
    assert (spoken["n"] + spoken["unparsed"], spoken["failed"]) == (PAIRS, 1)


def test_the_report_has_the_accuracy_of_the_judgments(evaluated: Evaluated) -> None:
    pairs = [pair for pair in read_judgments([evaluated.log]).pairs if pair.gaps is not None]
    gaps = np.array([pair.gaps for pair in pairs])
    p_bar = preference_from_gaps(gaps[:, 0], gaps[:, 1]).p_bar
    right = np.where([pair.label == "A" for pair in pairs], p_bar > 0.5, p_bar < 0.5)
    accuracy = evaluated.method("bpe")["quality"]["accuracy"]
    assert accuracy == pytest.approx(right.mean(), abs=1e-5)
    assert f"{accuracy:.3f}" in (evaluated.out / "report.md").read_text(encoding="utf-8")
    assert f"{accuracy:.3f}" in evaluated.output
