"""`scope-judge audits export` and `import`: audits that people label in another tool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.cli.labelling import audit_requests
from app.cli.labelling.kept_pairs import MOST_PAIRS
from app.cli.service_client import ServiceClient
from app.service.labelling.tickets import CANNOT
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.cli.commands import one_line, rows_of, write_rows
from tests.unit.cli.listening import listening
from tests.unit.cli.test_audits_label import judged, labels
from tests.unit.files.tool_exports import Answers, argilla, json_min, label_studio, rows_of_json

COUNT = 5
EXPORTS = {"label-studio": label_studio, "json_min": json_min, "argilla": argilla}


@pytest.fixture
def url() -> Iterator[str]:
    with listening(application_of(store=MemoryStore(), audit_rate=1.0)) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(60)}).raise_for_status()
        yield url


@pytest.fixture
def drawn(url: str, tmp_path: Path) -> Path:
    return judged(url, tmp_path, range(COUNT))


def run(url: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["audits", *map(str, arguments), "--url", url])


def exported(url: str, drawn: Path, tool: str = "label-studio", *options: str) -> Path:
    out = drawn.parent / "tasks.json"
    to = "label-studio" if tool == "json_min" else tool
    result = run(url, "export", drawn, "--to", to, "--out", out, "--overwrite", *options)
    assert result.exit_code == 0, result.output
    return out


def labelled(out: Path, answers: dict[int, Answers], tool: str = "label-studio") -> Path:
    """The export of a tool after people have labelled some of its pairs."""
    file = out.with_name("labelled.json")
    file.write_text(json.dumps(EXPORTS[tool](rows_of_json(out), answers)), "utf-8")
    return file


@pytest.fixture
def keeping() -> Iterator[str]:
    """A service that keeps texts, with the sets `default` and `other`."""
    application = application_of(store=MemoryStore(), audit_rate=1.0, audit_texts=True)
    with listening(application) as url:
        for name in ("default", "other"):
            body = {"calibration": name, "examples": examples(60)}
            httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        yield url


def judge(url: str, numbers: range, calibration: str = "default") -> None:
    comparisons = [
        {
            "question": f"Question {number}: which?",
            "response_a": f"quality={3 + number / 1000} first",
            "response_b": "quality=0 second",
        }
        for number in numbers
    ]
    body = {"comparisons": comparisons, "calibration": calibration}
    httpx.post(f"{url}/judge/batch", json=body).raise_for_status()


def prefer_first(out: Path) -> dict[int, Answers]:
    """Everybody prefers response A, which has the word "first"."""
    shown = [row.get("data") or row["fields"] for row in rows_of_json(out)]
    return {
        place: [("left" if "first" in texts["left"] else "right", None)]
        for place, texts in enumerate(shown)
    }


@pytest.mark.parametrize("tool", EXPORTS)
def test_labels_of_a_tool_arrive_and_a_second_import_changes_nothing(
    tool: str, url: str, drawn: Path
) -> None:
    out = exported(url, drawn, tool)
    answers = prefer_first(out) | {1: [("tie", None)], 2: [(CANNOT, "the texts are cut")]}
    del answers[4]
    file = labelled(out, answers, tool)
    done = run(url, "import", file, "--yes")
    assert done.exit_code == 0, done.output
    told = one_line(done.stderr)
    assert "5 rows: 2 usable, 1 tie, 1 cannot be labelled, 1 unlabelled" in told
    assert "labelled 3, closed 1, labels replaced 0, sent before 0" in told
    assert labels(url) == ["A", "tie", "none", "A", None]
    trail = httpx.get(f"{url}/calibrations/default/audit-trail").json()["entries"]
    assert [each["reason"] for each in trail] == ["the texts are cut"]
    again = run(url, "import", file, "--yes")
    assert again.exit_code == 0
    assert "labelled 0, closed 0, labels replaced 0, sent before 4" in one_line(again.stderr)
    assert labels(url) == ["A", "tie", "none", "A", None]


def test_the_open_audits_leave_oldest_first_and_blind(url: str, drawn: Path) -> None:
    write_rows(drawn, rows_of(drawn.read_text())[::-1])
    httpx.post(
        f"{url}/audits/labels",
        json={"labels": [{"id": rows_of(drawn.read_text())[-1]["id"], "label": "A"}]},
    ).raise_for_status()
    out = exported(url, drawn)
    questions = [row["data"]["question"] for row in rows_of_json(out)]
    assert questions == [f"Question {number}: which?" for number in range(1, COUNT)]
    text = out.read_text() + out.with_suffix(".xml").read_text()
    assert "secret" not in text
    assert "verdict" not in text


def test_without_a_file_all_texts_that_the_service_keeps_leave(
    keeping: str, tmp_path: Path
) -> None:
    # More than `audits label` shows in one run.
    judge(keeping, range(MOST_PAIRS + 5))
    judge(keeping, range(2000, 2001), "other")
    out = tmp_path / "tasks.json"
    done = run(keeping, "export", "--to", "label-studio", "--out", out)
    assert done.exit_code == 0, done.output
    assert f"has {MOST_PAIRS + 6} open audits for Label Studio." in one_line(done.stderr)
    questions = [row["data"]["question"] for row in rows_of_json(out)]
    assert questions == [f"Question {n}: which?" for n in (*range(MOST_PAIRS + 5), 2000)]
    one = tmp_path / "one.json"
    given = ("--to", "label-studio", "--out", one, "--name", "other")
    assert run(keeping, "export", *given).exit_code == 0
    assert [row["data"]["question"] for row in rows_of_json(one)] == ["Question 2000: which?"]
    sent = run(keeping, "import", labelled(one, prefer_first(one)), "--yes")
    assert sent.exit_code == 0, sent.output
    query = {"calibration": "other"}
    (audit,) = httpx.get(f"{keeping}/audits", params=query).json()["audits"]
    assert audit["label"] == "A"
    empty = run(keeping, "export", *given, "--overwrite")
    assert empty.exit_code == 1
    assert "no audit is open: there is nothing to label" in one_line(empty.stderr)


def test_a_name_limits_the_pairs_of_files_to_a_set(url: str, drawn: Path) -> None:
    out = exported(url, drawn, "label-studio", "--name", "default")
    assert len(rows_of_json(out)) == COUNT
    none = run(url, "export", drawn, "--to", "argilla", "--out", out, "--name", "other")
    assert none.exit_code == 1


def test_without_a_file_a_service_without_texts_names_the_setting(
    url: str, drawn: Path, tmp_path: Path
) -> None:
    refused = run(url, "export", "--to", "argilla", "--out", tmp_path / "tasks.json")
    assert refused.exit_code == 1
    assert f"keeps no texts of its {COUNT} open audits" in one_line(refused.stderr)
    assert "SCOPE_AUDIT_TEXTS=on" in one_line(refused.stderr)
    assert not (tmp_path / "tasks.json").exists()


def test_the_seed_decides_the_sides(url: str, drawn: Path) -> None:
    sides = {
        seed: [row["data"]["audit"].split(".")[1] for row in rows_of_json(out)]
        for seed in ("0", "0", "1", "2", "3")
        for out in [exported(url, drawn, "label-studio", "--seed", seed)]
    }
    assert len({tuple(each) for each in sides.values()}) > 1


def test_people_who_disagree_are_left_out_refused_or_the_last_one_counts(
    url: str, drawn: Path
) -> None:
    out = exported(url, drawn)
    first, second = prefer_first(out)[0][0][0], prefer_first(out)[1][0][0]
    other = {"left": "right", "right": "left"}[str(first)]
    file = labelled(
        out,
        {
            0: [(first, None), (other, None)],
            1: [(second, None), (second, None)],
            2: [("tie", None), (CANNOT, "unclear")],
        },
    )
    refused = run(url, "import", file, "--yes", "--contradictions", "refuse")
    assert refused.exit_code == 1
    assert "contradict each other" in one_line(refused.stderr)
    assert labels(url) == [None] * COUNT
    dropped = run(url, "import", file, "--yes")
    told = one_line(dropped.stderr)
    assert "8 rows: 1 usable, 2 unlabelled, 1 repeated, 4 contradict each other" in told
    assert "row 1, annotation 1 (A) and" in told
    assert "row 3, annotation 2 (none)" in told
    assert "none of them counts; --contradictions last lets the last one count" in told
    assert labels(url) == [None, "A", None, None, None]
    # The last one by its time, wherever its row is.
    tasks = rows_of_json(file)
    tasks[0]["annotations"].reverse()
    file.write_text(json.dumps(tasks), "utf-8")
    assert run(url, "import", file, "--yes", "--contradictions", "last").exit_code == 0
    assert labels(url) == ["B", "A", "none", None, None]


def test_unknown_and_broken_rows_are_named_and_the_others_count(url: str, drawn: Path) -> None:
    out = exported(url, drawn)
    tasks = label_studio(rows_of_json(out), prefer_first(out))
    left, right = tasks[1]["data"]["left"], tasks[1]["data"]["right"]
    tasks[1]["data"] |= {"left": right, "right": left}
    tasks[2]["annotations"][0]["result"][0]["value"]["choices"] = ["best"]
    file = out.with_name("labelled.json")
    file.write_text(json.dumps(tasks), "utf-8")
    # A service that has not drawn these pairs.
    with listening(application_of(store=MemoryStore(), audit_rate=1.0)) as elsewhere:
        strange = run(elsewhere, "import", file, "--yes")
        assert strange.exit_code == 1
        told = one_line(strange.stderr)
        assert "unusable, 3: the service has no such audit" in told
        assert "there is no label to send" in told
    done = run(url, "import", file, "--yes")
    told = one_line(done.stderr)
    assert "5 rows: 3 usable, 2 unusable" in told
    assert f"the pair is not as it was exported: a text or its ticket differs ({file}, row 2)" in (
        told
    )
    assert f"the answer is not one of left, right, tie, cannot be labelled ({file}, row 3)" in told
    assert labels(url) == ["A", None, None, "A", "A"]


def test_nothing_is_sent_without_a_yes(url: str, drawn: Path) -> None:
    out = exported(url, drawn)
    asked = run(url, "import", labelled(out, prefer_first(out)))
    assert asked.exit_code == 1
    assert "5 rows: 5 usable" in one_line(asked.stderr)
    assert "nothing was sent: stdin is not a terminal" in one_line(asked.stderr)
    assert labels(url) == [None] * COUNT


def test_labels_arrive_in_the_order_of_the_draws_and_ctrl_c_between_requests_loses_none(
    url: str, drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = exported(url, drawn)
    file = labelled(out, prefer_first(out))
    file.write_text(json.dumps(rows_of_json(file)[::-1]), "utf-8")
    monkeypatch.setattr(audit_requests, "_MOST_AUDITS", 2)
    post, posts = ServiceClient.post, list[Any]()

    def stopped(self: ServiceClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
        posts.append(body)
        answer = post(self, path, body)
        if len(posts) == 1:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(ServiceClient, "post", stopped)
    first = run(url, "import", file, "--yes")
    assert first.exit_code == 130
    assert "rerun the command" in one_line(first.stderr)
    assert labels(url) == ["A", "A", None, None, None]
    assert run(url, "import", file, "--yes").exit_code == 0
    assert labels(url) == ["A"] * COUNT


def test_an_audit_in_the_other_order_gets_the_label_of_its_order(url: str, drawn: Path) -> None:
    first = rows_of(drawn.read_text())[0]
    swapped = {
        "id": f"{int(first['id'], 16) ^ 1:032x}",
        "question": first["question"],
        "response_a": first["response_b"],
        "response_b": first["response_a"],
    }
    write_rows(drawn, [swapped])
    out = exported(url, drawn)
    assert run(url, "import", labelled(out, prefer_first(out)), "--yes").exit_code == 0
    # `first` is B in the file, and A in the order of the judgment.
    assert labels(url) == ["A"] + [None] * (COUNT - 1)


def test_an_export_replaces_no_file_without_being_told(url: str, drawn: Path) -> None:
    out = exported(url, drawn)
    refused = run(url, "export", drawn, "--to", "label-studio", "--out", out)
    assert refused.exit_code == 1
    assert "already exists" in one_line(refused.stderr)
    other = drawn.parent / "other.json"
    other.with_suffix(".xml").write_text("mine")
    refused = run(url, "export", drawn, "--to", "label-studio", "--out", other)
    assert "other.xml already exists" in one_line(refused.stderr)
    assert not other.exists()
    assert other.with_suffix(".xml").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--to", "excel", "--out", "t.json"), "--to must be label-studio or argilla"),
        (("--to", "argilla", "--out", "t.jsonl"), "must end in .json"),
        (("--to", "argilla", "--out", "no/such/folder/t.json"), "there is no folder"),
    ],
)
def test_an_export_with_a_wrong_option_writes_nothing(
    options: tuple[str, ...], told: str, url: str, drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(drawn.parent)
    before = sorted(drawn.parent.iterdir())
    refused = run(url, "export", drawn, *options)
    assert refused.exit_code == 1
    assert told in one_line(refused.stderr)
    assert sorted(drawn.parent.iterdir()) == before


def test_pairs_that_all_have_a_label_are_not_exported(url: str, drawn: Path) -> None:
    out = exported(url, drawn)
    assert run(url, "import", labelled(out, prefer_first(out)), "--yes").exit_code == 0
    refused = run(url, "export", drawn, "--to", "argilla", "--out", drawn.parent / "new.json")
    assert refused.exit_code == 1
    assert "there is nothing to label" in one_line(refused.stderr)
