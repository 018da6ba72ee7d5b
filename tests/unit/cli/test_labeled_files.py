"""The four commands that read labels count alike, and lead from an Excel file to a picture."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.writing import replace_file
from tests.unit.cli.commands import one_line

Rows = list[dict[str, Any]]
_OTHER = {"A": "B", "B": "A"}


def run(*arguments: str | Path) -> Result:
    environment = {"COLUMNS": "200", "SCOPE_ENGINE": "scripted"}
    return CliRunner().invoke(app, list(map(str, arguments)), env=environment)


def pair(number: int, quality: float, label: str) -> dict[str, Any]:
    """A pair on which the scripted judge prefers A if the quality is positive."""
    return {
        "question": f"Question {number}?",
        "response_a": f"quality={quality}",
        "response_b": f"quality=0 of {number}",
        "label": label,
    }


def swapped(row: dict[str, Any]) -> dict[str, Any]:
    a, b = row["response_a"], row["response_b"]
    return {**row, "response_a": b, "response_b": a, "label": _OTHER[row["label"]]}


def right(numbers: range) -> Rows:
    return [pair(n, 1.5, "A") if n % 2 else pair(n, -1.5, "B") for n in numbers]


def untidy() -> Rows:
    """40 usable pairs, 30 of them right; 20 rows repeat wrong ones, and 4 contradict each other."""
    wrong = [pair(n, 1.5, "B") for n in range(30, 40)]
    repeated = [*wrong, *map(swapped, wrong)]
    contradicting = [pair(50, 1.0, "A"), pair(50, 1.0, "B")]
    contradicting += [pair(51, 1.0, "A"), {**swapped(pair(51, 1.0, "A")), "label": "A"}]
    others = [
        {**pair(60, 1.0, "A"), "label": "tie"},
        {**pair(61, 1.0, "A"), "label": None},
        {**pair(62, 1.0, "A"), "response_b": " "},
    ]
    return [*right(range(30)), *wrong, *repeated, *contradicting, *others]


REPORT = "67 rows: 40 usable, 1 tie, 1 unlabeled, 1 unusable, 20 repeated, 4 contradict each other"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    replace_file(tmp_path / "labels.jsonl", untidy())
    return tmp_path / "labels.jsonl"


def test_every_command_counts_the_same_rows_and_has_the_same_accuracy(
    file: Path, clean_url: str, tmp_path: Path
) -> None:
    curve = run("curve", file, "--url", clean_url)
    calibrate = run("calibrate", file, "--url", clean_url)
    out = tmp_path / "out"
    options = ("--methods", "bpe", "--splits", "5")
    evaluate = run("evaluate", file, "--judge", "demo", "--out", out, *options)
    assert [each.exit_code for each in (curve, calibrate, evaluate)] == [0, 1, 0]
    for result in (curve, calibrate, evaluate):
        assert one_line(result.stderr).count(REPORT) == 1, result.stderr
        assert "response_b is blank" in one_line(result.stderr)
        # Repeated pairs are repeated errors here: counted, they would make 30 of 60.
        assert "0.750" in result.stdout or "accuracy 0.750" in one_line(result.stderr)
    assert httpx.get(f"{clean_url}/calibrations/default").json()["accuracy"] == 0.75
    assert json.loads((out / "results.json").read_text())["datasets"][0]["n"] == 40
    # The same of rows that are judged already, whose texts are known.
    judged = tmp_path / "labels-judged.jsonl"
    again = run("curve", judged)
    assert REPORT in one_line(again.stderr)
    assert again.stdout == curve.stdout


@pytest.mark.parametrize("command", ["curve", "calibrate", "evaluate"])
def test_an_unknown_word_is_refused_before_anything_is_judged(
    command: str, file: Path, tmp_path: Path
) -> None:
    replace_file(file, [*untidy(), *({**pair(70 + n, 1.0, "A"), "label": "left!"} for n in (1, 2))])
    options = ["--judge", "demo"] if command == "evaluate" else ["--url", "http://127.0.0.1:9"]
    result = run(command, file, *options)
    assert result.exit_code == 1
    told = one_line(result.stderr)
    assert "line 68: the labels 'left!' in label are unknown words: correct these cells" in told
    texts = "question=question,response_a=response_a,response_b=response_b"
    assert f"--map {texts},label=label,A=WORD,B=WORD,tie=WORD" in told


def excel_file(path: Path) -> Path:
    """Labeled pairs as a German Excel saves them as CSV."""
    rng = random.Random(3)
    rows = [["Nr.", "Frage", "Antwort 1", "Antwort 2", "Besser?", "Kommentar"]]
    words = {"A": "Antwort 1", "B": "Antwort 2"}
    for n in range(60):
        quality = round(rng.gauss(0, 2), 2)
        is_right = rng.random() < 0.5 + min(0.5, abs(quality) / 3)
        side = "A" if (quality > 0) == is_right else "B"
        label = "" if n == 7 else "gleich" if n == 9 else words[side]
        rows.append(
            [f"{n}", f"Wei\u00dft du {n}?", f"quality={quality}", f"quality=0; {n}", label, ""]
        )
    with path.open("w", encoding="cp1252", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\r\n").writerows(rows)
    return path


def test_one_map_leads_every_command_from_excel_to_its_end(tmp_path: Path, clean_url: str) -> None:
    file = excel_file(tmp_path / "Bewertung.csv")
    command: list[str | Path] = ["curve", file, "--url", clean_url]
    assert "--encoding cp1252" in one_line(run(*command).stderr)
    first = ["--encoding", "cp1252"]
    titled = tmp_path / "titled.csv"
    titled.write_bytes(b"Bewertungen\n" + file.read_bytes())
    told = one_line(run("curve", titled, *first).stderr)
    assert "the columns are Bewertungen, and a comparison needs question, response_a" in told
    assert "response_b: delete the rows above your header" in told
    told = one_line(run(*command, *first).stderr)
    assert "the columns are Nr., Frage, Antwort 1, Antwort 2, Besser?" in told
    whole = "question=COLUMN,response_a=COLUMN,response_b=COLUMN,label=COLUMN,A=WORD,B=WORD"
    assert f"--map {whole}" in told
    texts = "question=Frage,response_a=Antwort 1,response_b=Antwort 2"
    options = [*first, "--map", f"{texts},label=Besser?,A=Antwort 1,B=Antwort 2,tie=gleich"]
    result = run(*command, *options)
    assert result.exit_code == 0, result.output
    assert "60 rows: 58 usable, 1 tie, 1 unlabeled" in one_line(result.stderr)
    assert result.stdout.startswith("58 labels without ties, accuracy 0.")
    # Excel keeps empty rows below a table.
    file.write_bytes(file.read_bytes() + b";;;;;\r\n ; ;;;;\r\n")
    assert run("calibrate", file, "--url", clean_url, *options).exit_code == 0
    assert httpx.get(f"{clean_url}/calibrations/default").json()["n"] == 58 + 1
    # With a map of the texts alone, the error asks for the label.
    told = one_line(run("calibrate", file, "--url", clean_url, *first, "--map", texts).stderr)
    assert "label=COLUMN,A=WORD,B=WORD" in told


def test_labels_that_people_add_in_excel_to_judged_pairs_are_read(
    tmp_path: Path, clean_url: str
) -> None:
    file, out = excel_file(tmp_path / "pairs.csv"), tmp_path / "judged.xlsx"
    columns = "question=Frage,response_a=Antwort 1,response_b=Antwort 2"
    words = "label=Besser?,A=Antwort 1,B=Antwort 2,tie=gleich"
    options = ["--map", columns, "--map", words]
    given: list[str | Path] = [file, "--encoding", "cp1252", *options, "--url", clean_url]
    expected = run("curve", *given).stdout
    assert run("judge", *given, "--no-alpha", "--out", out).exit_code == 0
    judged = run("curve", out, *options)
    assert judged.exit_code == 0, judged.output
    assert judged.stdout == expected
    assert "60 rows: 58 usable, 1 tie, 1 unlabeled" in one_line(judged.stderr)
