"""An answer of another shape ends a command with a sentence, and never with a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from scope_judge import records
from tests.unit.cli.commands import one_line, write_rows
from tests.unit.clients.planned import INFO, Handler, PlannedService, page, serving
from tests.unit.clients.test_answers import JUDGMENT, example

LABELED = {"question": "q", "response_a": "a", "response_b": "b", "label": "A"}
EXPORTED = {
    "scope_judge_set": 3,
    "name": "x",
    "version": 1,
    "judge": "planned",
    "fingerprint": INFO["fingerprint"],
    "n": 0,
    "release": "1",
    "runtimes": [],
}
# Answers of the three routes that `calibrate` asks, for one pair.
CALIBRATED = {
    **example(records.CalibrationReport),
    **example(records.CalibrationDetail),
    **example(records.Scores),
    "fingerprint": INFO["fingerprint"],
    "scores": [example(records.ScoredExample)],
    "errors": [],
    "unlabelled": 0,
    "pool_ties": 0,
}
# Command -> an answer that fits it.
COMMANDS: dict[str, Any] = {
    "calibrate PAIRS --overwrite --replace --yes": CALIBRATED,
    "judge --question q --a x --b y": JUDGMENT,
    "sets list": {**example(records.CalibrationPage), "next_after": None},
    "sets show x": example(records.CalibrationDetail),
    "sets versions x": example(records.Versions),
    "sets rollback x 1 --yes": example(records.CalibrationChange),
    "sets delete x --yes": {**example(records.Deletion), **example(records.Versions)},
    "sets export x": example(records.ExamplePage),
    "sets import SET --yes": example(records.CalibrationReport),
    "audits status x": example(records.Monitor),
    "audits absorb x --yes": example(records.AbsorbReport),
    "audits resume x --reason y": example(records.Resumed),
    "audits trail x": {**example(records.AuditTrail), "next_before": None},
}


def with_a_wrong_part(value: Any) -> Iterator[Any]:
    """The value with each of its parts replaced by an object, in turn; of a list, its first one."""
    yield {}
    if isinstance(value, list) and value:
        yield from ([wrong, *value[1:]] for wrong in with_a_wrong_part(value[0]))
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: wrong} for wrong in with_a_wrong_part(part))


@pytest.mark.parametrize("words", COMMANDS)
def test_an_answer_of_another_shape_ends_the_command_in_words(words: str, tmp_path: Path) -> None:
    files = {
        "SET": write_rows(tmp_path / "set.jsonl", [EXPORTED]),
        "PAIRS": write_rows(tmp_path / "pairs.jsonl", [LABELED]),
    }

    def run(answer: Any) -> Result:
        def act(handler: Handler, body: dict[str, Any]) -> None:
            handler.send(200, json.dumps(answer).encode())

        service.rule = act
        arguments = [str(files.get(word, word)) for word in words.split()]
        return CliRunner().invoke(app, [*arguments, "--url", service.url])

    with serving(PlannedService()) as service:
        assert run(COMMANDS[words]).exit_code == 0
        refused = 0
        for wrong in (None, [], 1, "x", *with_a_wrong_part(COMMANDS[words])):
            result = run(wrong)
            assert isinstance(result.exception, SystemExit | None), (wrong, result.exception)
            refused += "unexpected_answer: the answer" in result.stderr
    assert refused > 5


def test_a_change_whose_answer_cannot_be_read_may_have_been_made() -> None:
    would = json.dumps(example(records.CalibrationChange)).encode()
    acts = [lambda handler: handler.send(200, would), page(200)]
    with serving(PlannedService(acts)) as service:
        arguments = ["sets", "rollback", "x", "1", "--yes", "--url", service.url]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "check whether the change was made before you repeat it" in one_line(result.stderr)
    assert [body.get("dry_run") for body in service.bodies] == [True, False]
