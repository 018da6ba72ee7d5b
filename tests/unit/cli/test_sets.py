"""Tests of `scope-judge sets` against services that listen on a port."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app, console
from app.release import RELEASE
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.api.problems import comparison, examples
from tests.unit.cli.commands import PROGRAM, one_line, rows_of, write_rows
from tests.unit.cli.listening import Disturbed, listening

runner = CliRunner()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scope_judge.exchange._FIRST_PAUSE_S", 0.01)


@contextmanager
def with_two_sets() -> Iterator[str]:
    """A service with the sets `default`, with two versions, and `small`."""
    with listening(application_of(store=MemoryStore())) as url:
        for name, n in (("default", 60), ("default", 400), ("small", 3)):
            body = {"calibration": name, "examples": examples(n)}
            httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service with two sets, which no test changes."""
    with with_two_sets() as url:
        yield url


@pytest.fixture
def own_url() -> Iterator[str]:
    """A service with two sets for a test that changes them."""
    with with_two_sets() as url:
        yield url


@pytest.fixture
def empty_url() -> Iterator[str]:
    with listening(application_of(store=MemoryStore())) as url:
        yield url


def run(url: str, *arguments: str, **kwargs: Any) -> Result:
    return runner.invoke(app, ["sets", *arguments, "--url", url], **kwargs)


def set_at(url: str, name: str = "default") -> Any:
    return httpx.get(f"{url}/calibrations/{name}").json()


def test_sets_are_listed_for_people_and_pipes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = run(url, "list")
    accuracy = "1.000"
    assert piped.stdout.splitlines() == [
        "\t".join(("default", "2", "460", "scripted", accuracy, "marginal, pac")),
        "\t".join(("small", "1", "3", "scripted", accuracy, "infeasible")),
    ]
    monkeypatch.setattr(console, "on_a_terminal", lambda: True)
    table = one_line(run(url, "list").stdout)
    for heading in ("name", "version", "pairs", "judge", "accuracy", "alpha 0.10"):
        assert f" {heading} " in table
    assert "marginal, pac" in table


def test_a_set_is_shown_with_thresholds_and_quality(url: str) -> None:
    result = run(url, "show", "default")
    assert result.exit_code == 0
    shown = one_line(result.stdout)
    assert "calibration default, version 2 460 labels without ties, accuracy 1.000" in shown
    assert "marginal" in shown


def test_versions_say_when_by_whom_and_with_which_effect(own_url: str) -> None:
    run(own_url, "rollback", "default", "1", "--yes")
    lines = [line.split("\t") for line in run(own_url, "versions", "default").stdout.splitlines()]
    assert [[each[0], *each[2:]] for each in lines] == [
        ["3", "anonymous", "rollback to 1", "0", "0", "400", "60"],
        ["2", "anonymous", "calibrate", "400", "0", "0", "460"],
        ["1", "anonymous", "calibrate", "60", "0", "0", "60"],
    ]
    assert len(run(own_url, "versions", "default", "--limit", "1").stdout.splitlines()) == 1


def test_a_deleted_set_comes_back_with_the_printed_command(own_url: str) -> None:
    before = set_at(own_url)
    result = run(own_url, "delete", "default", "--yes")
    assert result.exit_code == 0
    assert "`scope-judge sets rollback default 2`" in one_line(result.stderr)
    assert httpx.get(f"{own_url}/calibrations/default").status_code == 404
    result = run(own_url, "rollback", "default", "2", "--yes")
    assert result.exit_code == 0
    assert "default is version 4, with the 460 examples of version 2" in one_line(result.stderr)
    assert set_at(own_url) == {**before, "version": 4}


def test_a_pool_is_shown_with_what_its_labels_say_so_far(empty_url: str) -> None:
    assert "`scope-judge calibrate FILE` makes one" in one_line(run(empty_url, "list").stderr)
    pairs = [comparison(question=f"{i}?") for i in range(8)]
    pool = {"comparisons": pairs}
    httpx.post(f"{empty_url}/calibrations/pool/pool", json=pool).raise_for_status()
    body = {"calibration": "pool", "examples": [{**pairs[0], "label": "A"}]}
    httpx.post(f"{empty_url}/calibrate", json=body).raise_for_status()
    shown = one_line(run(empty_url, "show", "pool").stdout)
    assert "1 pairs labeled" in shown
    assert "7 without a label" in shown
    assert "labels missing" in shown


def used(url: str) -> None:
    """Brings alpha 0.1 into use."""
    httpx.post(f"{url}/judge", json=comparison()).raise_for_status()


@pytest.mark.parametrize(
    "arguments", ["rollback default 1", "delete default", "import small.jsonl --name default"]
)
def test_nothing_changes_without_a_terminal_and_without_yes(url: str, arguments: str) -> None:
    used(url)
    before = set_at(url)
    run(url, "export", "small", "--out", "small.jsonl", "--overwrite")
    result = run(url, *arguments.split(), input="y\n")
    assert result.exit_code == 1
    assert re.search(r"nothing was \w+: stdin is not a terminal", one_line(result.stderr))
    assert "give --yes" in result.stderr
    # The effects are shown all the same.
    cells = result.stdout.rstrip("\n").split("\t")
    assert (cells[:3], cells[4] if arguments.startswith("delete") else cells[5]) == (
        ["0.1", "marginal", ""],
        "1.000",
    )
    assert "default, version 2: " in one_line(result.stderr)
    assert set_at(url) == before


@pytest.mark.parametrize(("reply", "changed"), [("y", True), ("n", False), ("", False)])
def test_on_a_terminal_a_change_is_confirmed(own_url: str, reply: str, changed: bool) -> None:
    arguments = ["sets", "delete", "default", "--url", own_url]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdin=theirs, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, f"{reply}\n".encode())
        told = process.communicate()[1]
    os.close(ours)
    assert "Delete default, version 2?" in told
    assert process.returncode == (0 if changed else 1)
    assert (httpx.get(f"{own_url}/calibrations/default").status_code == 404) == changed


def test_an_export_moves_a_set_to_another_service(url: str, empty_url: str, tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    written = run(url, "export", "default", "--out", str(file))
    assert written.exit_code == 0
    assert f"{file} has default, version 2, with 460 examples" in one_line(written.stderr)
    assert file.read_text() == run(url, "export", "default").stdout
    header, *rows = rows_of(file.read_text())
    info = httpx.get(f"{url}/info").json()
    assert header == {
        **{"scope_judge_set": 3, "name": "default", "version": 2, "judge": "scripted"},
        **{"fingerprint": info["fingerprint"], "n": 460, "release": RELEASE},
    }
    assert [sorted(row) for row in rows] == [
        ["digest", "gap_fwd", "gap_rev", "is_reversed", "label", "label_mass", "question", "small"]
    ] * 460
    result = run(empty_url, "import", str(file), "--yes")
    assert result.exit_code == 0, result.stderr
    assert "default is version 1 with 460 examples: added 460" in one_line(result.stderr)
    assert set_at(empty_url) == {**set_at(url), "version": 1}
    again = run(empty_url, "import", str(file), "--yes", "--name", "copy")
    assert "copy is version 1 with 460 examples" in one_line(again.stderr)
    repeated = run(empty_url, "import", str(file), "--yes")
    assert "version 1 with 460 examples: added 0, updated 460" in one_line(repeated.stderr)


def test_an_export_never_mixes_two_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scope_judge.calls._MOST_EXAMPLES", 7)
    plain = application_of(store=MemoryStore())

    class Changing:
        """Changes the set before the third page of the first attempt."""

        def __init__(self) -> None:
            self.pages = 0

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"].endswith("/examples"):
                self.pages += 1
                if self.pages == 3:
                    row = {**examples(1)[0], "question": "New?"}
                    transport = httpx.ASGITransport(plain)
                    async with httpx.AsyncClient(transport=transport) as client:
                        url = "http://localhost/calibrate"
                        (await client.post(url, json={"examples": [row]})).raise_for_status()
            await plain(scope, receive, send)

    with listening(Changing()) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(30)}).raise_for_status()
        changed = run(url, "export", "default")
        assert (changed.exit_code, changed.stdout) == (1, "")
        assert "default has changed while it was read: read it again" in one_line(changed.stderr)
        result = run(url, "export", "default")
        assert result.exit_code == 0, result.stderr
        header, *rows = rows_of(result.stdout)
        assert (header["version"], header["n"], len(rows)) == (2, 31, 31)
        assert {row["digest"] for row in rows} == {
            row["digest"]
            for row in httpx.get(f"{url}/calibrations/default/examples").json()["examples"]
        }


def test_a_large_import_says_how_many_versions_it_makes(url: str) -> None:
    text = run(url, "export", "default").stdout
    with listening(application_of(store=MemoryStore(), max_body_bytes=50_000)) as small:
        result = run(small, "import", "-", "--yes", input=text)
        assert result.exit_code == 0, result.stderr
        assert "Their effect cannot be shown before" in one_line(result.stderr)
        made = set_at(small)
    assert 2 <= made["version"] <= 3
    assert made["n"] == 460
    assert "added 460, updated 0" in one_line(result.stderr)


def test_a_rollback_that_gets_no_answer_is_not_repeated() -> None:
    plain = application_of(store=MemoryStore())
    # The first request is the dry run.
    busy = Disturbed(plain, "/rollback", at=2, then=lambda: None)
    with listening(busy) as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples(3)}).raise_for_status()
        result = run(url, "rollback", "default", "1", "--yes")
    assert result.exit_code == 1
    assert busy.requests == 2
    assert "check whether the change was made" in one_line(result.stderr)


HEADER = {
    "scope_judge_set": 3,
    "name": "x",
    "version": 1,
    "judge": "scripted",
    "n": 1,
    "release": "0.3.0",
}
DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (examples(3), "line 1: this is not an exported set"),
        ([{"scope_judge_set": 3}], "line 1: this release reads sets of format 3"),
        ([{**HEADER, "scope_judge_set": 2}], "export the set again with this release"),
        ([{**HEADER, "scope_judge_set": 4}], "use the release that wrote it"),
        ([HEADER], "has 0 examples and was written with 1: it was cut off"),
        ([HEADER, {"digest": DIGEST, "label": "A"}], "is damaged: export the set again"),
    ],
)
def test_a_wrong_file_is_refused(
    empty_url: str, tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    fields = {
        "fingerprint": httpx.get(f"{empty_url}/info").json()["fingerprint"],
    }
    described = [{**row, **fields} if "name" in row else row for row in rows]
    file = write_rows(tmp_path / "set.jsonl", described)
    result = run(empty_url, "import", str(file), "--yes")
    assert result.exit_code == 1
    assert message in one_line(result.stderr)
    assert httpx.get(f"{empty_url}/calibrations").json()["calibrations"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "absent"], "calibration_not_found"),
        (["delete", "absent", "--yes"], "calibration_not_found"),
        (["rollback", "small", "9"], "version_not_found"),
        (["import", "absent.jsonl"], "absent.jsonl cannot be read"),
        (["export", "small", "--out", "set.csv"], "the name must end in .jsonl"),
        (["export", "small", "--out", "/absent/set.jsonl"], "cannot be written"),
    ],
)
def test_a_mistake_is_an_error_in_words(url: str, arguments: list[str], message: str) -> None:
    result = run(url, *arguments)
    assert result.exit_code == 1
    assert message in one_line(result.stderr)
    assert "Traceback" not in result.stderr
