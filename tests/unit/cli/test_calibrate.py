"""Tests of `scope-judge calibrate FILE`: one version, and no pair lost or counted twice."""

import json
import math
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from app.cli import app
from app.cli.commands.calibrate import print_held_out
from app.files.labeled import read_pairs
from app.files.reading import InputFormat
from app.judges.engines.scripted import ScriptedEngine, by_quality
from app.ports import LabelLogits, Prompt, PromptError
from app.stores.memory import MemoryStore
from scope_judge import Judgment, ScopeClient
from tests.serving import application_of
from tests.unit.api.problems import comparison, examples
from tests.unit.cli.commands import PROGRAM, one_line, send_one_request_at_a_time, write_rows
from tests.unit.cli.listening import Disturbed, listening

runner = CliRunner()
ROWS = 20


class Judging:
    """A service whose store survives it, and that remembers which prompts were judged."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self._store = MemoryStore()

    def application(self, judge: str = "scripted", **settings: Any) -> FastAPI:
        def script(prompt: Prompt) -> LabelLogits | PromptError:
            self.prompts.append(prompt.user)
            return LabelLogits(math.nan, 0.0) if "BROKEN" in prompt.user else by_quality(prompt)

        return application_of(ScriptedEngine(script, judge=judge), self._store, **settings)

    @property
    def pairs(self) -> int:
        """Number of judged pairs."""
        return len(self.prompts) // 2


@pytest.fixture
def judging() -> Judging:
    return Judging()


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    send_one_request_at_a_time(monkeypatch, 4)


def written(folder: Path, rows: list[dict[str, Any]], name: str = "labels.jsonl") -> Path:
    return write_rows(folder / name, rows)


def calibrated(url: str, file: Path | str, *options: str, **kwargs: Any) -> Result:
    """Calibrates, with a request for each four pairs."""
    arguments = ["calibrate", str(file), "--url", url, *options]
    return runner.invoke(app, arguments, **kwargs)


def journals(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.partial"))


def versions(url: str, name: str = "default") -> list[dict[str, Any]]:
    """The trail of a set, oldest change first."""
    found: list[dict[str, Any]] = httpx.get(f"{url}/calibrations/{name}/versions").json()[
        "versions"
    ]
    return found[::-1]


def examples_in(url: str, name: str) -> Any:
    return httpx.get(f"{url}/calibrations/{name}/examples").json()["examples"]


def test_pairs_that_fail_are_named_in_part_and_the_others_count(
    judging: Judging, tmp_path: Path
) -> None:
    rows = examples(ROWS)
    # A whole request.
    for row in rows[-4:]:
        row["response_a"] = "BROKEN"
    with listening(judging.application()) as url:
        result = calibrated(url, written(tmp_path, rows))
        assert result.exit_code == 1
        assert "labels.jsonl, line 17: the judge" in result.stderr
        assert "and 1 more" in result.stderr
        assert "added 16, updated 0, ties 0, removed 0, failed 4" in result.stderr
        assert [each["n"] for each in versions(url)] == [16]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_run_makes_one_version_whatever_the_batches(
    judging: Judging, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_one_request_at_a_time(monkeypatch, size)
    rows = examples(ROWS)
    rows[3]["label"] = "tie"
    file = written(tmp_path, [*rows, rows[0]])
    with listening(judging.application()) as url:
        result = calibrated(url, file)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == ""
        assert "`scripted` is for tests" in result.stderr
        assert "calibration default, version 1 19 labels without ties, accuracy" in one_line(
            result.stderr
        )
        (only,) = versions(url)
        httpx.post(f"{url}/calibrate", json={"calibration": "one", "examples": rows})
        assert examples_in(url, "default") == examples_in(url, "one")
    assert (only["action"], only["n"], only["ties"]) == ("import", ROWS, 1)
    assert (only["added"], only["updated"], only["ties"]) == (ROWS - 1, 0, 1)
    assert "21 rows: 19 usable, 1 tie, 1 repeated" in result.stderr
    assert "added 19, updated 0, ties 1, removed 0, failed 0" in result.stderr
    # One tie of 20 accepted pairs.
    assert "5.0% are ties (95% intervals from 0.9% to 23.6%)" in one_line(result.stderr)
    assert journals(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "at", "handled", "judged", "how"),
    [
        ("/calibrate/scores", 1, False, 0, signal.SIGINT),
        ("/calibrate/scores", 1, True, 8, signal.SIGKILL),
        ("/calibrate/scores", 2, False, 8, signal.SIGKILL),
        ("/calibrate/scores", 2, True, ROWS, signal.SIGINT),
        ("/examples", 1, False, ROWS, signal.SIGKILL),
        ("/examples", 1, False, ROWS, signal.SIGINT),
        ("/examples", 1, True, ROWS, signal.SIGKILL),
    ],
)
def test_a_run_that_is_stopped_leaves_the_old_version_and_goes_on(
    judging: Judging,
    tmp_path: Path,
    path: str,
    at: int,
    handled: bool,
    judged: int,
    how: signal.Signals,
) -> None:
    file = written(tmp_path, examples(ROWS))
    started: list[subprocess.Popen[bytes]] = []

    def stop() -> None:
        started[0].send_signal(how)
        started[0].wait()

    with listening(
        Disturbed(judging.application(), path, at=at, then=stop, handled=handled)
    ) as url:
        earlier = [{**examples(1)[0], "question": "Earlier?"}]
        httpx.post(f"{url}/calibrate", json={"examples": earlier}).raise_for_status()
        before = judging.pairs
        command = ["calibrate", str(file), "--url", url]
        started.append(subprocess.Popen([*PROGRAM, *command], stderr=subprocess.PIPE))
        _, told = started[0].communicate()
        assert started[0].returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
        assert b"Traceback" not in told
        if how == signal.SIGINT:
            state = b"is unchanged" if path == "/calibrate/scores" else b"may have changed"
            assert state in b" ".join(told.split())
        assert judging.pairs - before == judged
        committed = path == "/examples" and handled
        assert len(versions(url)) == (2 if committed else 1)

        known = judging.pairs
        result = calibrated(url, file)
        assert result.exit_code == 0, result.stderr
        # A batch whose answer was lost is judged again.
        lost = {1: 8, 2: ROWS - 8}[at] if handled and path == "/calibrate/scores" else 0
        assert judging.pairs - known == ROWS - judged + lost
        assert [(each["version"], each["n"]) for each in versions(url)] == [(1, 1), (2, ROWS + 1)]
        alone = {"calibration": "alone", "examples": [*earlier, *examples(ROWS)]}
        httpx.post(f"{url}/calibrate", json=alone).raise_for_status()
        assert examples_in(url, "default") == examples_in(url, "alone")
    assert journals(tmp_path) == []


def test_a_judge_that_is_replaced_during_a_run_spoils_nothing(
    judging: Judging, tmp_path: Path
) -> None:
    file = written(tmp_path, examples(ROWS))
    one, other = judging.application("one"), judging.application("other")

    def replace() -> None:
        disturbed.app = other

    disturbed = Disturbed(one, "/calibrate/scores", at=3, then=replace)
    with listening(other), listening(disturbed) as url:
        result = calibrated(url, file)
        assert result.exit_code == 1
        assert "judge of the service has changed" in result.stderr
        disturbed.app = one
        assert calibrated(url, file).exit_code == 0
        assert [(each["judge"], each["n"]) for each in versions(url)] == [("one", ROWS)]


def test_an_unfinished_run_over_standard_input_is_resumed(judging: Judging, tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in examples(ROWS))
    disturbed = Disturbed(judging.application(), "/calibrate/scores", at=2, then=lambda: None)
    with listening(disturbed) as url:
        assert calibrated(url, "-", "--patience", "0", input=text).exit_code == 1
        assert "Question" not in (tmp_path / "calibrate-default.partial").read_text()
        assert calibrated(url, "-", input=text).exit_code == 0
        assert [each["n"] for each in versions(url)] == [ROWS]
    assert judging.pairs == ROWS
    assert journals(tmp_path) == []


# The labels that differ are in the last of several requests, or all are in one.
@pytest.mark.parametrize("max_body_bytes", [2500, 2**20])
def test_labels_that_differ_from_the_set_are_named_and_need_an_option(
    judging: Judging, tmp_path: Path, max_body_bytes: int
) -> None:
    rows = examples(ROWS)
    with listening(judging.application(max_body_bytes=max_body_bytes)) as url:
        assert calibrated(url, written(tmp_path, rows)).exit_code == 0
        before, made = examples_in(url, "default"), versions(url)
        flipped = [{**row, "label": "B" if row["label"] == "A" else "A"} for row in rows[:5]]
        # The same pair in the other order, with the label that it has.
        turned = {**rows[7], "response_a": rows[7]["response_b"]}
        turned["response_b"] = rows[7]["response_a"]
        turned["label"] = "B" if rows[7]["label"] == "A" else "A"
        file = written(tmp_path, [turned, *rows[8:], *flipped])
        refused = calibrated(url, file)
        assert refused.exit_code == 1
        told = f"5 of the pairs have another label in default: {file}, line {ROWS - 6} "
        assert told in one_line(refused.output)
        assert "--change-labels" in refused.output
        assert "default is unchanged; rerun the command to resume" in one_line(refused.output)
        assert "may have changed" not in refused.output
        assert examples_in(url, "default") == before
        assert versions(url) == made
        judged = judging.pairs
        changed = calibrated(url, file, "--change-labels")
        assert changed.exit_code == 0, changed.output
        assert "added 0, updated 18" in changed.output
        assert judging.pairs == judged
        after = examples_in(url, "default")
    assert sum(old["label"] != new["label"] for old, new in zip(before, after, strict=True)) == 5


def test_a_run_with_more_scores_than_a_request_holds_makes_few_versions(
    judging: Judging, tmp_path: Path
) -> None:
    file = written(tmp_path, examples(100))
    with listening(judging.application(max_body_bytes=8000)) as url:
        result = calibrated(url, file)
        assert result.exit_code == 0, result.stderr
        made = versions(url)
        whole = examples_in(url, "default")
    # A score takes at most 280 bytes, and 1,000 bytes are left for the other fields.
    assert 2 <= len(made) <= 4
    assert "added 100, updated 0, ties 0, removed 0, failed 0" in result.stderr
    assert len(whole) == made[-1]["n"] == 100


def replaced(url: str, file: Path, *options: str) -> Result:
    return calibrated(url, file, "--replace", *options)


def test_a_replacement_is_shown_judged_once_and_made_in_one_version(
    judging: Judging, tmp_path: Path
) -> None:
    file = written(tmp_path, examples(ROWS))
    with listening(judging.application()) as url:
        old = [{**row, "question": f"Old {row['question']}"} for row in examples(30)]
        httpx.post(f"{url}/calibrate", json={"examples": old}).raise_for_status()
        httpx.post(f"{url}/judge", json=comparison()).raise_for_status()
        before, known = examples_in(url, "default"), judging.pairs
        shown = replaced(url, file)
        assert shown.exit_code == 1
        assert "nothing was replaced: stdin is not a terminal" in one_line(shown.stderr)
        assert (
            "default, version 1: 30 examples become 20 (20 added, 0 updated, 30 removed); no alpha "
            "in use loses its verdicts" in one_line(shown.stderr)
        )
        assert "default is unchanged; rerun the command to resume" in one_line(shown.stderr)
        assert shown.stdout.startswith("0.1\tmarginal\t")
        assert examples_in(url, "default") == before
        done = replaced(url, file, "--yes")
        assert done.exit_code == 0, done.stderr
        # The scores of the first run were kept.
        assert judging.pairs == known + ROWS
        alone = {"calibration": "alone", "examples": examples(ROWS)}
        httpx.post(f"{url}/calibrate", json=alone).raise_for_status()
        assert examples_in(url, "default") == examples_in(url, "alone")
        assert [(each["version"], each["n"]) for each in versions(url)] == [(1, 30), (2, ROWS)]
    assert journals(tmp_path) == []


def test_a_replacement_that_needs_several_requests_is_refused(
    judging: Judging, tmp_path: Path
) -> None:
    file = written(tmp_path, examples(100))
    with listening(judging.application(max_body_bytes=8000)) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(3)}).raise_for_status()
        refused = replaced(url, file, "--yes")
        assert refused.exit_code == 1
        assert "body_too_large" in refused.stderr
        assert [each["n"] for each in versions(url)] == [3]


@pytest.mark.parametrize("handled", [False, True])
def test_a_replacement_without_an_answer_is_not_sent_again(
    judging: Judging, tmp_path: Path, handled: bool
) -> None:
    file = written(tmp_path, examples(ROWS))
    # The first request is the dry run.
    busy = Disturbed(judging.application(), "/examples", at=2, then=lambda: None, handled=handled)
    with listening(busy) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(3)}).raise_for_status()
        result = replaced(url, file, "--yes")
        assert result.exit_code == 1
        assert busy.requests == 2
        assert "has been replaced as a whole, or is unchanged" in one_line(result.stderr)
        known = judging.pairs
        assert replaced(url, file, "--yes").exit_code == 0
        assert judging.pairs == known
        assert versions(url)[-1]["n"] == ROWS


def test_each_value_of_a_column_gets_a_set_of_its_own(judging: Judging, tmp_path: Path) -> None:
    rows = [{**row, "subject": ("math", "code")[i % 2]} for i, row in enumerate(examples(20))]
    with listening(judging.application()) as url:
        result = calibrated(url, written(tmp_path, rows), "--name", "mine", "--by", "subject")
        assert result.exit_code == 0, result.stderr
        for name, part in (("math", rows[::2]), ("code", rows[1::2])):
            httpx.post(f"{url}/calibrate", json={"calibration": "x", "examples": [
                {field: row[field] for field in row if field != "subject"} for row in part
            ]}).raise_for_status()  # fmt: skip
            assert examples_in(url, f"mine-{name}") == examples_in(url, "x")
            httpx.delete(f"{url}/calibrations/x").raise_for_status()
        rows[7]["subject"] = "a b"
        refused = calibrated(url, written(tmp_path, rows), "--name", "mine", "--by", "subject")
        assert refused.exit_code == 1
        assert "line 8: --by subject needs a value there" in one_line(refused.stderr)
        assert len(httpx.get(f"{url}/calibrations").json()["calibrations"]) == 2


def test_held_out_questions_are_not_in_the_set_and_are_judged_with_it(
    judging: Judging, tmp_path: Path
) -> None:
    # Every tenth label is wrong, also among those that are held out.
    rows = [
        {
            **comparison(question=f"Which, {i // 2}?", response_a=f"quality={2 + i % 2}"),
            "label": "B" if i % 10 == 0 else "A",
        }
        for i in range(400)
    ]
    file = written(tmp_path, rows)
    with listening(judging.application()) as url:
        result = calibrated(url, file, "--hold-out", "0.3")
        assert result.exit_code == 0, result.stderr
        in_set = httpx.get(f"{url}/calibrations/default").json()["n"]
        again = calibrated(url, file, "--hold-out", "0.3")
        assert httpx.get(f"{url}/calibrations/default").json()["n"] == in_set
        calibrated(url, file)
        known = calibrated(url, file, "--hold-out", "0.3")
    held = 400 - in_set
    # Pairs of one question are on one side.
    assert held % 2 == 0
    assert 80 <= held <= 160
    said = one_line(result.stderr)
    assert f"{held} held-out pairs under the new thresholds" in said
    # The scripted judge accepts all of them where alpha allows a tenth of errors.
    assert f"{held} of {held}" in said
    assert f"{held} of {held}" in one_line(again.stderr)
    # Pairs that are in the set already are no check, and the screen says so.
    assert "has examples of earlier runs" in one_line(known.stderr)
    assert "has examples of earlier runs" not in said + one_line(again.stderr)


def test_the_held_out_figures_are_those_of_judging_these_pairs(
    judging: Judging, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The judge is wrong where it is unsure.
    rows = [
        {
            **comparison(question=f"Which, {i}?", response_a=f"quality={i % 40 / 10}"),
            "label": "B" if i % 40 < 4 or i % 37 == 0 else "A",
        }
        for i in range(300)
    ]
    with listening(judging.application()) as url, ScopeClient(url) as client:
        client.calibrate("mine", rows[:200])
        detail = client.calibration("mine")
        pairs = read_pairs([written(tmp_path, rows[200:])], InputFormat())
        print_held_out(client, detail, pairs)
        shown = re.findall(
            r"│ (\w+) +│ +([\d.]+) │ +(\d+) of 100 │ +(\d+) │", capsys.readouterr().err
        )
        for guarantee, alpha, accepted, wrong_ones in shown:
            criterion: Any = {"alpha": float(alpha), "guarantee": guarantee}
            asked = [pair.fields for pair in pairs]
            judged = client.judge_many(asked, calibration="mine", **criterion)
            verdicts = [each.verdict for each in judged if isinstance(each, Judgment)]
            both = zip(verdicts, rows[200:], strict=True)
            wrong = [verdict != row["label"] for verdict, row in both if verdict != "abstain"]
            assert (int(accepted), int(wrong_ones)) == (len(wrong), sum(wrong))
    assert len({accepted for _, _, accepted, _ in shown}) > 2


def test_equal_responses_are_a_tie_or_refused(judging: Judging, tmp_path: Path) -> None:
    equal = {"question": "Which?", "response_a": "quality=1", "response_b": "quality=1"}
    rows = [*examples(5), {**equal, "label": "A"}, {**equal, "question": "Or?", "label": "tie"}]
    with listening(judging.application()) as url:
        result = calibrated(url, written(tmp_path, rows))
        assert result.exit_code == 1
        assert "unusable, 1: the responses are equal, and the label A prefers one" in (
            one_line(result.stderr)
        )
        assert len(examples_in(url, "default")) == 6
