"""At the end of a run: whether labels and set say that the promise covers its pairs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from scope_judge import ForbiddenError, ScopeClient
from tests.unit.cli.commands import BAD, GOOD, SAME, write_rows

runner = CliRunner()


def pairs(count: int, *, sure: int, first: int = 0) -> list[dict[str, Any]]:
    """Pairs with a question each; the judge is sure of one in `sure`."""
    return [
        {
            "question": f"q{first + i}",
            "response_a": GOOD,
            "response_b": BAD if i % sure == 0 else SAME,
        }
        for i in range(count)
    ]


def ran(url: str, command: str, file: Path, *options: str) -> Result:
    out = file.with_name(f"{command}.jsonl")
    words = [command, str(file), "--out", str(out), "--alpha", "0.1", "--url", url, *options]
    return runner.invoke(app, words)


@pytest.mark.parametrize("command", ["judge", "filter"])
def test_pairs_like_those_of_the_set_get_no_warning(
    command: str, service: str, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "new.jsonl", pairs(100, sure=2, first=1000))
    result = ran(service, command, file)
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr
    assert "not compared" not in result.stderr


@pytest.mark.parametrize("command", ["judge", "filter"])
def test_pairs_unlike_those_of_the_set_are_named(
    command: str, service: str, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "new file.jsonl", pairs(100, sure=10, first=1000))
    result = ran(service, command, file)
    assert result.exit_code == 0, result.stderr
    warned = " ".join(result.stderr.split())
    assert "do not look like the 200 pairs of 'default' (uncertainty above" in warned
    assert "90% of them against 50%" in warned
    assert "Label some of them for a set of their own" in warned


def test_pairs_are_compared_with_a_set_that_knows_no_questions(
    service: str, tmp_path: Path
) -> None:
    with ScopeClient(service) as client:
        page = client.examples("default")
        examples = [replace(one, question=None) for one in page.examples]
        client.add_scores("unnamed", examples, fingerprint=page.fingerprint)
    file = write_rows(tmp_path / "new.jsonl", pairs(100, sure=10, first=1000))
    result = ran(service, "judge", file, "--calibration", "unnamed")
    assert "do not look like the 200 pairs of 'unnamed'" in " ".join(result.stderr.split())


def test_many_pairs_of_one_question_count_once(service: str, tmp_path: Path) -> None:
    rows = [{**row, "question": "one"} for row in pairs(100, sure=10)]
    rows = [{**row, "response_a": f"{row['response_a']} {i}"} for i, row in enumerate(rows)]
    result = ran(service, "judge", write_rows(tmp_path / "new.jsonl", rows))
    assert result.exit_code == 0, result.stderr
    assert "do not look like" not in result.stderr


def test_battles_are_compared_too(service: str, tmp_path: Path) -> None:
    models = {"model_a": "m1", "model_b": "m2"}
    rows = [{**row, **models, "human": "model_b"} for row in pairs(100, sure=1, first=1000)]
    result = ran(service, "battles", write_rows(tmp_path / "new.jsonl", rows))
    assert result.exit_code == 0, result.stderr
    first, *_, last = [line for line in result.stderr.splitlines() if "warning" in line]
    assert "the labels of the rows contradict 100.0%" in first
    assert "of the 100 verdicts with label A or B at alpha 0.1" in first
    assert "do not look like the 200 pairs" in last


def test_labeled_rows_tell_the_share_of_wrong_verdicts_and_ties(
    service: str, tmp_path: Path
) -> None:
    rows = [{**row, "label": "tie" if i < 40 else "A"} for i, row in enumerate(pairs(100, sure=1))]
    result = ran(service, "judge", write_rows(tmp_path / "labeled.jsonl", rows))
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stderr.split())
    # Wilson's interval of 0 in 60 at 95% ends at z^2 / (60 + z^2).
    assert (
        "The labels of the rows contradict 0.0% (0.0% to 6.0%) of the 60 verdicts with "
        "label A or B at alpha 0.1." in said
    )
    assert "40 labels are ties, 40 of them on accepted verdicts" in said
    # The set has every other one of these pairs, and the labels of its own pairs are no check.
    assert "50 of the 100 labeled pairs are in 'default' itself" in said


def test_a_set_that_cannot_be_read_does_not_fail_the_run(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(client: ScopeClient, name: str, **options: Any) -> None:
        raise ForbiddenError("not this set", code="forbidden")

    monkeypatch.setattr(ScopeClient, "examples", refused)
    result = ran(service, "judge", write_rows(tmp_path / "new.jsonl", pairs(10, sure=2)))
    assert result.exit_code == 0, result.stderr
    assert "were not compared with those of 'default': forbidden: not this set" in result.stderr
