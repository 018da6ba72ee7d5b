"""`scope-judge evaluate` on vLLM with the demo judge: each pair is judged, or counted as failed."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.preference import preference_from_gaps
from app.demo.pairs import demo_sets
from app.evaluation.judgments.jsonl import read_judgments

pytestmark = [
    pytest.mark.vllm,
    # `make test` has the answers in words of vLLM, and whole runs of the scripted judge.
    pytest.mark.long,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]

PAIRS = 20


def test_every_pair_is_judged_or_counted_as_failed(tmp_path: Path) -> None:
    rows = [{"id": f"{i}", **pair._asdict()} for i, pair in enumerate(demo_sets().fresh[:PAIRS])]
    rows.append({**rows[0], "id": "too-long", "question": "one more word " * 10_000})
    file, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["evaluate", str(file), "--judge", "demo", "--out", str(out), "--splits", "50"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "SCOPE_ENGINE": "vllm"})
    assert result.exit_code == 0, result.output
    pairs = {pair.id: pair for pair in read_judgments([out / "judgments.jsonl"]).pairs}
    too_long = pairs.pop("too-long")
    assert set((too_long.failed or {}).values()) == {"prompt_too_long"}
    (found,) = json.loads((out / "results.json").read_text())["datasets"]
    methods = {each["method"]: each for each in found["methods"]}
    bpe, spoken = methods["bpe"], methods["verbalized_confidence"]
    assert (bpe["n"], bpe["unparsed"], bpe["failed"]) == (PAIRS, 0, 1)
    # An answer in words that names no winner or no confidence is no verdict.
    assert (spoken["n"] + spoken["unparsed"], spoken["failed"]) == (PAIRS, 1)
    gaps = np.array([pair.gaps for pair in pairs.values()])
    p_bar = preference_from_gaps(gaps[:, 0], gaps[:, 1]).p_bar
    right = np.where([pair.label == "A" for pair in pairs.values()], p_bar > 0.5, p_bar < 0.5)
    assert bpe["quality"]["accuracy"] == pytest.approx(right.mean(), abs=1e-5)
    assert f"{right.mean():.3f}" in (out / "report.md").read_text(encoding="utf-8")
