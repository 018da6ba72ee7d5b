"""Filtered pairs of the demo judge: silence where they are like the set, a warning where not."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.demo.pairs import Pair, demo_sets
from tests.integration.processes.server import Server
from tests.unit.cli.commands import write_rows

# tests/unit/cli/test_coverage_of_runs.py has the scripted judge.
pytestmark = [pytest.mark.vllm, pytest.mark.long]

PAIRS = 400
# The tasks of the demo, and the same ones in words that the judge has never read.
WORDS = {
    "Is the number ": "Is ",
    "Which number is larger, ": "Which is larger, ",
    "Write this word once more: ": "Repeat this word: ",
    "What is the ": "Tell me the ",
    "Which is the ": "What is the ",
    "Sort these numbers from small to large: ": "Sort from small to large: ",
    "How many times is the letter ": "Count the letter ",
    "Write this word backwards: ": "Spell backwards: ",
}


def in_other_words(pair: Pair) -> Pair:
    known = next((words for words in WORDS if pair.question.startswith(words)), "")
    return pair._replace(question=WORDS.get(known, "") + pair.question.removeprefix(known))


def filtered(pairs: Iterable[Pair], server: Server, folder: Path) -> Result:
    """Filters pairs with the right labels at alpha 0.05."""
    rows = [
        {
            "prompt": pair.question,
            "chosen": pair.response_a if pair.label == "A" else pair.response_b,
            "rejected": pair.response_b if pair.label == "A" else pair.response_a,
        }
        for pair in pairs
    ]
    file = write_rows(folder / "pairs.jsonl", rows)
    words = ["filter", str(file), "--out", str(folder / "kept.jsonl"), "--alpha", "0.05"]
    return CliRunner().invoke(app, [*words, "--url", str(server.client.base_url)])


def test_pairs_of_the_demo_are_filtered_without_a_warning(
    demo_server: Server, tmp_path: Path
) -> None:
    result = filtered(demo_sets().fresh[:PAIRS], demo_server, tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr


def test_pairs_in_other_words_are_unlike_the_set_and_their_labels_contradict_alpha(
    demo_server: Server, tmp_path: Path
) -> None:
    result = filtered(map(in_other_words, demo_sets().fresh[:PAIRS]), demo_server, tmp_path)
    assert result.exit_code == 0, result.stderr
    labels, *_, unlike = [line for line in result.stderr.splitlines() if "warning" in line]
    assert "verdicts accepted at alpha 0.05" in labels
    assert "do not look like the 600 pairs of 'default'" in unlike
