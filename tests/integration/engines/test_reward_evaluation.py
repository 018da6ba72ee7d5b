"""`scope-judge evaluate` on a reward model that runs on real vLLM: its rewards, journaled once."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.integration.engines.reward_checkpoint import (
    conversations,
    rewards_by_transformers,
    write_reward_model,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.long,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]


def evaluate(*arguments: str | Path) -> Result:
    given = {
        "SCOPE_ENGINE": "vllm",
        "SCOPE_DTYPE": "float32",
        "SCOPE_VLLM_ARGS": '{"kv_cache_memory_bytes": 16777216}',
    }
    return CliRunner().invoke(
        app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "200", **given}
    )


def test_evaluate_journals_the_rewards_of_transformers(tmp_path: Path) -> None:
    model = write_reward_model(tmp_path / "tiny", dtype="float32")
    asked = conversations()
    rewards = rewards_by_transformers(model, asked)
    pairs = [
        {
            "id": str(i),
            "question": asked[i][0].content,
            "response_a": asked[i][1].content,
            "response_b": asked[i + 1][1].content,
            "label": "A" if rewards[i] > rewards[i + 1] else "B",
        }
        for i in range(0, len(asked), 2)
    ]
    long = {**pairs[0], "id": "long", "response_b": "one more word " * 1000}
    file, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*pairs, long]), encoding="utf-8")
    arguments = (file, "--judge", model, "--out", out, "--splits", "5")
    result = evaluate(*arguments)
    assert result.exit_code == 0, result.output
    assert "Loading judge tiny, a reward model (Qwen3ForSequenceClassification)" in result.output
    log = (out / "judgments.jsonl").read_text(encoding="utf-8")
    lines = {line["id"]: line for line in map(json.loads, log.splitlines())}
    assert lines.pop("long")["failed"] == {"orders": "prompt_too_long"}
    for i in range(0, len(asked), 2):
        line = lines[str(i)]
        gap = rewards[i] - rewards[i + 1]
        # Pairs are judged in a random order of their responses.
        assert line["gap_fwd"] == pytest.approx(-gap if line.get("swapped") else gap, abs=1e-4)
        assert (line["orders"], "gap_rev" in line, "label_mass" in line) == (1, False, False)
    (dataset,) = json.loads((out / "results.json").read_text(encoding="utf-8"))["datasets"]
    (bpe,) = dataset["methods"]
    assert (bpe["method"], bpe["n"], bpe["failed"]) == ("bpe", len(pairs), 1)
    assert bpe["quality"]["accuracy"] == 1.0
    again = evaluate(*arguments)
    assert again.exit_code == 0, again.output
    assert "Loading judge" not in again.output
    assert (out / "judgments.jsonl").read_text(encoding="utf-8") == log
