"""`scope-judge decide` gives the results that judging anew would give, from every format."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.reading import read_rows
from app.files.writing import replace_file
from app.stores.memory import MemoryStore
from tests.serving import application_of
from tests.unit.cli.commands import one_line
from tests.unit.cli.listening import listening

CRITERIA: tuple[list[str], ...] = (
    ["--alpha", "0.05"],
    ["--alpha", "0.2"],
    ["--alpha", "0.05", "--guarantee", "pac"],
    ["--alpha", "0.15", "--guarantee", "pac"],
    ["--alpha", "0.25", "--guarantee", "pac", "--delta", "0.05"],
    ["--alpha", "0.25", "--guarantee", "pac", "--delta", "0.1", "--delta-for", "3"],
    ["--no-alpha"],
)
ENDINGS = ("jsonl", "json", "csv", "tsv", "parquet", "jsonl.gz", "csv.zst")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def pairs(n: int = 150) -> list[dict[str, Any]]:
    rng = random.Random(8)
    rows = []
    for i in range(n):
        quality = round(rng.gauss(0, 2), 2)
        right = rng.random() < 0.55 + min(0.45, abs(quality) / 3)
        rows.append(
            {
                # The first pair has no preference.
                "question": f"Question {i}?",
                "response_a": f"quality={quality if i else 0}",
                "response_b": f"quality=0 of {i}",
                "label": "A" if (quality > 0) == right else "B",
                "reason": "the annotator's",
            }
        )
    return rows


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(application_of(store=MemoryStore())) as url:
        examples = [{k: v for k, v in row.items() if k != "reason"} for row in pairs()]
        body = {"examples": examples, "label_noise": 0.02}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def folder(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs, their results at alpha 0.1, and the exported set."""
    folder = tmp_path_factory.mktemp("decide")
    replace_file(folder / "pairs.jsonl", pairs())
    out = folder / "judged.jsonl"
    judged = run("judge", folder / "pairs.jsonl", "--out", out, "--url", url)
    assert judged.exit_code == 0, judged.output
    export = run("sets", "export", "default", "--out", folder / "set.jsonl", "--url", url)
    assert export.exit_code == 0, export.output
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in read_rows(path)]


def test_for_excel_no_cell_is_a_formula_and_numbers_stay_numbers(
    folder: Path, tmp_path: Path
) -> None:
    judged, out = tmp_path / "judged.jsonl", tmp_path / "out.tsv"
    (row, *_) = rows_of(folder / "judged.jsonl")
    replace_file(judged, [{**row, "=note": "=1+1", "signs": "+-@", "number": -5}])
    result = run("decide", judged, "--no-alpha", "--flat", "--excel", "--out", out)
    assert result.exit_code == 0, result.output
    (found,) = rows_of(out)
    assert (found["'=note"], found["signs"], found["number"]) == ("'=1+1", "'+-@", "-5")
    assert float(found["p_bar"]) == row["judgment"]["p_bar"]


@pytest.mark.parametrize("criterion", CRITERIA, ids=" ".join)
def test_the_results_are_those_of_judging_anew(
    criterion: list[str], url: str, folder: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.jsonl"
    anew = run("judge", folder / "pairs.jsonl", "--out", new, "--url", url, *criterion)
    assert anew.exit_code == 0, anew.output
    expected = rows_of(new)
    for source in (["--url", url], ["--labels", str(folder / "set.jsonl")]):
        decided = tmp_path / f"{len(source[0])}.jsonl"
        result = run("decide", folder / "judged.jsonl", *criterion, *source, "--out", decided)
        assert result.exit_code == 0, result.output
        assert rows_of(decided) == expected
        # The same counts and the same promise.
        assert one_line(result.output) in re.sub(r", \d+ pairs a second", "", one_line(anew.output))
    verdicts = {row["judgment"]["verdict"] for row in expected}
    # Below 184 labels pac accepts nothing at 0.05.
    infeasible = criterion[1:] == ["0.05", "--guarantee", "pac"]
    assert verdicts == ({"abstain"} if infeasible else {"A", "B", "abstain"})


def battles(n: int = 60) -> list[dict[str, Any]]:
    """Battles of three models, every second one with a person's label; the last one has no text."""
    names = ("left", "right", "new")
    rows = [
        {
            **{name: row[name] for name in ("question", "response_a", "response_b")},
            "model_a": names[i % 3],
            "model_b": names[(i + 1) % 3],
            "human": {"A": "model_a", "B": "model_b"}[row["label"]] if i % 2 else None,
            "human_probability": 0.5,
        }
        for i, row in enumerate(pairs(n))
    ]
    return [*rows, {**rows[0], "response_a": ""}]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_rows_of_battles_are_decided_as_if_judged_anew(
    ending: str, url: str, tmp_path: Path
) -> None:
    replace_file(tmp_path / "battles.jsonl", battles())
    made = {}
    for alpha in ("0.05", "0.3"):
        made[alpha] = tmp_path / f"{alpha}.{ending}"
        run(
            "battles",
            tmp_path / "battles.jsonl",
            "--alpha",
            alpha,
            "--out",
            made[alpha],
            "--url",
            url,
        )
    out = tmp_path / f"out.{ending}"
    result = run("decide", made["0.05"], "--alpha", "0.3", "--url", url, "--out", out)
    assert "1 of 61 rows have no judgment" in one_line(result.output)
    found, expected, old = rows_of(out), rows_of(made["0.3"]), rows_of(made["0.05"])
    assert [row.get("winner") for row in found] != [row.get("winner") for row in old]
    numbers = ("threshold", "risk_level")
    for row, anew in zip(found, expected, strict=True):
        for name in row:
            if name in numbers and row[name] not in (None, ""):
                assert float(row[name]) == pytest.approx(float(anew[name]), abs=1e-9)
            elif name not in ("timestamp", "audit"):
                assert str(row[name]) == str(anew.get(name)), name


def test_labels_of_battles_calibrate_and_the_verdict_is_no_label(
    url: str, folder: Path, tmp_path: Path
) -> None:
    replace_file(tmp_path / "battles.jsonl", battles()[:-1])
    rows = tmp_path / "rows.jsonl"
    run("battles", tmp_path / "battles.jsonl", "--out", rows, "--url", url)
    decided = run("decide", rows, "--alpha", "0.3", "--labels", rows, "--out", tmp_path / "x.jsonl")
    assert "30 labelled" in one_line(decided.output) or "30 pairs" in one_line(decided.output)
    added = run("calibrate", tmp_path / "battles.jsonl", "--name", "arena", "--yes", "--url", url)
    assert added.exit_code == 0, added.output
    assert "added 30" in one_line(added.output)


def test_deciding_again_replaces_what_was_decided(url: str, folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.jsonl"
    arguments = ["--alpha", "0.25", "--guarantee", "pac", "--url", url]
    run("decide", folder / "judged.jsonl", *arguments, "--out", first)
    assert all("{" not in str(value) for row in rows_of(first) for value in row.values())
    run("decide", first, "--alpha", "0.1", "--url", url, "--no-flat", "--out", second)
    assert rows_of(second) == rows_of(folder / "judged.jsonl")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_every_format_is_decided_alike(
    ending: str, flat: bool, url: str, folder: Path, tmp_path: Path
) -> None:
    judged, out = tmp_path / f"judged.{ending}", tmp_path / f"out.{ending}"
    pairs_file, options = folder / "pairs.jsonl", ["--flat"] if flat else ["--no-flat"]
    # Without an alpha all columns that have one are empty, and may be lost.
    run("judge", pairs_file, "--no-alpha", "--url", url, "--out", judged, *options)
    result = run("decide", judged, "--alpha", "0.2", "--url", url, "--out", out, *options)
    assert result.exit_code == 0, result.output
    expected = tmp_path / f"expected.{ending}"
    run("judge", pairs_file, "--alpha", "0.2", "--url", url, "--out", expected, *options)
    assert rows_of(out) == rows_of(expected)
    assert rows_of(out)[5]["reason"] == "the annotator's"


def test_a_suspended_criterion_of_the_service_is_suspended_here(tmp_path: Path) -> None:
    application = application_of(store=MemoryStore(), audit_rate=1.0, on_alarm="abstain")
    with listening(application) as url:
        body = {"examples": [{k: v for k, v in row.items() if k != "reason"} for row in pairs()]}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        fresh = [{**row, "question": f"New {i}?"} for i, row in enumerate(pairs())]
        replace_file(tmp_path / "fresh.jsonl", fresh)
        judged, out = tmp_path / "judged.jsonl", tmp_path / "out.jsonl"
        run("judge", tmp_path / "fresh.jsonl", "--out", judged, "--url", url)
        accepted = [row["judgment"] for row in rows_of(judged)]
        accepted = [each for each in accepted if each["verdict"] != "abstain"]
        labels = [
            {"id": each["audit"]["id"], "label": "B" if each["verdict"] == "A" else "A"}
            for each in accepted
        ]
        httpx.post(f"{url}/audits/labels", json={"labels": labels}).raise_for_status()
        result = run("decide", judged, "--alpha", "0.1", "--out", out, "--url", url)
        assert result.exit_code == 0, result.output
        assert "audits have shown more errors than alpha" in one_line(result.output)
        reasons = {row["judgment"]["reason"] for row in rows_of(out)}
        assert reasons == {"suspended", "no_preference"}
        larger = tmp_path / "larger.jsonl"
        run("decide", judged, "--alpha", "0.2", "--out", larger, "--url", url)
        assert "suspended" not in {row["judgment"]["reason"] for row in rows_of(larger)}


def test_labelled_results_are_labels(url: str, folder: Path, tmp_path: Path) -> None:
    # 0.02 is the noise of the set.
    options = ["--alpha", "0.1", "--labels", str(folder / "judged.jsonl")]
    options += ["--label-noise", "0.02"]
    out = tmp_path / "out.jsonl"
    result = run("decide", folder / "judged.jsonl", *options, "--out", out)
    assert result.exit_code == 0, result.output
    for found, expected in zip(rows_of(out), rows_of(folder / "judged.jsonl"), strict=True):
        judgment, known = found["judgment"], expected["judgment"]
        assert judgment["verdict"] == known["verdict"]
        assert judgment["threshold"] == pytest.approx(known["threshold"], rel=1e-12)
        assert judgment["calibration"] == {"name": "judged.jsonl", "version": 0, "n": 150}


def test_labelled_results_may_have_other_words(folder: Path, tmp_path: Path) -> None:
    words = {"A": "links", "B": "rechts"}
    rows = [
        {name: value for name, value in row.items() if name != "label"}
        | {"besser": words[row["label"]]}
        for row in rows_of(folder / "judged.jsonl")
    ]
    other, out, expected = (tmp_path / f"{name}.jsonl" for name in ("other", "out", "expected"))
    replace_file(other, rows)
    options = ["--alpha", "0.1", "--overwrite", "--labels"]
    found = run("decide", folder / "judged.jsonl", *options, other, "--out", out)
    assert found.exit_code == 1
    mapped = "label=besser,A=links,B=rechts"
    found = run("decide", folder / "judged.jsonl", *options, other, "--map", mapped, "--out", out)
    assert found.exit_code == 0, found.output
    own = folder / "judged.jsonl"
    assert run("decide", own, *options, own, "--out", expected).exit_code == 0
    for row, known in zip(rows_of(out), rows_of(expected), strict=True):
        assert row["judgment"]["verdict"] == known["judgment"]["verdict"]
        assert row["judgment"]["threshold"] == known["judgment"]["threshold"]


def test_an_error_stays_an_error_and_no_scores_are_one(
    url: str, folder: Path, tmp_path: Path
) -> None:
    rows = rows_of(folder / "judged.jsonl")[:3]
    error = {"code": "prompt_too_long", "detail": "too long"}
    rows[0]["judgment"] = {"error": error}
    del rows[1]["judgment"]["uncertainty"]
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    replace_file(file, rows)
    result = run("decide", file, "--alpha", "0.2", "--url", url, "--out", out)
    assert result.exit_code == 1
    assert "2 of 3 rows have no judgment" in one_line(result.output)
    first, second, third = (row["judgment"] for row in rows_of(out))
    assert first == {"error": error}
    assert second["error"]["detail"] == "the row has no scores of a judge"
    assert "verdict" in third


def test_a_judgment_off_task_is_never_accepted(folder: Path, tmp_path: Path) -> None:
    rows = rows_of(folder / "judged.jsonl")[5:7]
    rows[0]["judgment"] |= {"verdict": "abstain", "reason": "off_task"}
    file = tmp_path / "rows.jsonl"
    replace_file(file, rows)
    result = run("decide", file, "--no-alpha")
    first, second = (json.loads(line)["judgment"] for line in result.stdout.splitlines())
    assert (first["verdict"], first["reason"]) == ("abstain", "off_task")
    assert second["verdict"] in ("A", "B")


def test_the_results_of_another_judge_are_refused(url: str, folder: Path, tmp_path: Path) -> None:
    rows = rows_of(folder / "judged.jsonl")
    rows[4]["judgment"]["judge"] = "other"
    file = tmp_path / "rows.jsonl"
    replace_file(file, rows)
    result = run("decide", file, "--alpha", "0.2", "--url", url, "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 1
    words = "line 5: the result is of the judge other, and the labels are of scripted"
    assert words in one_line(result.output)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --alpha, or --no-alpha"),
        (["--alpha", "0.1", "--no-alpha"], "give --alpha, or --no-alpha"),
        (["--alpha", "1"], "--alpha must be between 0 and 1"),
        (["--alpha", "0.1", "--guarantee", "sure"], "--guarantee must be marginal or pac"),
        (["--alpha", "0.1", "--delta", "0.1"], "--delta needs --guarantee pac"),
        (["--alpha", "0.1", "--delta-for", "5"], "marginal has no delta to divide"),
        (["--alpha", "0.1", "--label-noise", "0.5"], "--label-noise must be at least 0"),
        (["--alpha", "0.1", "--labels", "x", "--calibration", "y"], "not both"),
        (["--alpha", "0.1", "--labels", "{pairs}"], "has no labelled result"),
        (["--alpha", "0.1", "--map", "label=x"], "--map names the columns of --labels"),
        (["--alpha", "0.1", "--calibration", "absent"], "calibration_not_found"),
        (["--alpha", "0.1", "--out", "{judged}"], "would overwrite the file"),
        (["--alpha", "0.1", "--out", "{pairs}"], "already exists"),
        (["--alpha", "0.1", "--out", "x.xls"], "the name must end in .jsonl"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], words: str, url: str, folder: Path) -> None:
    given = [
        each.format(pairs=folder / "pairs.jsonl", judged=folder / "judged.jsonl")
        for each in arguments
    ]
    result = run("decide", folder / "judged.jsonl", *given, "--url", url)
    assert result.exit_code == 1
    assert words in one_line(result.output)


def test_a_file_without_results_is_refused(folder: Path) -> None:
    result = run("decide", folder / "pairs.jsonl", "--no-alpha")
    assert result.exit_code == 1
    assert "has no results of `scope-judge judge FILE`" in one_line(result.output)
