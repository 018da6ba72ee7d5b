"""The file of judged pairs: lines survive, bad lines are refused, and a single process writes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import JudgmentLog, judgment_line, read_judgments
from app.evaluation.judgments.record import JudgedPair
from app.ports import Generated

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0.0, 1.0)
TEXT = st.builds(Generated, st.text(), st.booleans(), st.just(""))
SIDE = st.sampled_from(["A", "B"])
OBSERVATION = st.sampled_from(["orders", "verbalized", "annotators", "samples"])
SIGNAL: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"gaps": st.tuples(FINITE, FINITE), "label_mass": SHARE}),
    st.fixed_dictionaries({"p": st.tuples(SHARE, SHARE)}),
    FINITE.map(lambda gap: {"gaps": (gap, gap), "orders": 1}),
)
OWN = st.builds(
    lambda signal, **fields: JudgedPair(**signal, **fields),
    SIGNAL,
    dataset=st.text(min_size=1),
    id=st.text(min_size=1),
    swapped=st.booleans(),
    group=st.none() | st.text(),
    label=SIDE,
    judge=st.text(),
    fingerprint=st.text(),
    verbalized=st.none() | TEXT,
    annotators=st.none() | st.lists(FINITE, min_size=1).map(tuple),
    samples=st.none() | st.lists(TEXT, min_size=1).map(tuple),
    failed=st.none() | st.dictionaries(OBSERVATION, st.text(), min_size=1),
    asked=st.dictionaries(OBSERVATION, st.text(), min_size=1),
)


OF_OURS = {"label": "A", "dataset": "d", "id": "1"}


def write(folder: Path, *lines: dict[str, Any] | str) -> Path:
    file = folder / "judgments.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    file.write_text("".join(texts), encoding="utf-8")
    return file


@given(pair=OWN)
@settings(max_examples=30)
def test_a_written_line_is_read_back(
    pair: JudgedPair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    line = judgment_line(pair)
    assert line.isascii()
    assert line.count("\n") == 1
    file = write(tmp_path_factory.mktemp("x"), line)
    assert read_judgments([file]).pairs == (pair,)


def own(**fields: Any) -> JudgedPair:
    return JudgedPair(
        dataset="mt-bench", id="7", group=None, label="A", judge="demo", fingerprint="f", **fields
    )


def read(folder: Path, *pairs: JudgedPair) -> JudgedPair:
    (found,) = read_judgments([write(folder, *map(judgment_line, pairs))]).pairs
    return found


def test_a_file_of_scope_judge_judge_is_read(tmp_path: Path) -> None:
    file = tmp_path / "judged.jsonl"
    rows = [
        {"id": 1, "label": "A", "judgment": {"p_fwd": 0.9, "p_rev": 0.7, "label_mass": 0.5}},
        {"id": 2, "label": "B", "judgment": {"error": {"code": "prompt_too_long"}}},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = read_judgments([file])
    assert [(pair.label, pair.p) for pair in judged.pairs] == [("A", (0.9, 0.7))]
    assert [row.place for row in judged.report.unusable] == [f"{file}, line 2"]


def test_the_score_of_a_judge_without_orders_is_one_gap(tmp_path: Path) -> None:
    line = own(gaps=(1.5, 1.5), orders=1, asked={"orders": "x"})
    assert '"gap_fwd": 1.5, "orders": 1' in judgment_line(line)
    assert "gap_rev" not in judgment_line(line)
    assert read(tmp_path, line) == line
    corrected = dataclasses.replace(line.only(()), label="B", asked={})
    assert read(tmp_path, line, corrected).orders == 1
    failed = own(failed={"orders": "judgment_failed"}, asked={"orders": "y"})
    assert (read(tmp_path, line, failed).gaps, read(tmp_path, line, failed).orders) == (None, None)


def test_an_answer_replaces_a_failure_and_a_failure_an_answer(tmp_path: Path) -> None:
    answer = own(gaps=(1.0, 2.0), label_mass=0.9, asked={"orders": "x"})
    failure = own(failed={"orders": "prompt_too_long"}, asked={"orders": "y"})
    other = own(failed={"verbalized": "judgment_failed"}, asked={"verbalized": "z"})
    found = read(tmp_path, failure, other, answer)
    assert (found.gaps, found.failed) == ((1.0, 2.0), {"verbalized": "judgment_failed"})
    found = read(tmp_path, answer, failure)
    assert (found.gaps, found.label_mass) == (None, None)
    assert found.failed == {"orders": "prompt_too_long"}


def test_lines_without_label_or_answer_are_left_out_and_reported(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"label": "A", "p_fwd": 0.9, "p_rev": 0.8},
        {"label": "tie", "p_fwd": 0.9, "p_rev": 0.8},
        {"p_fwd": 0.9, "p_rev": 0.8},
        "\n",
        {"label": "B", "p_fwd": 0.9},
        {"label": "B"},
    )
    judged = read_judgments([file])
    assert [pair.id for pair in judged.pairs] == [f"{file}, line 1"]
    assert (judged.report.rows, judged.report.ties, judged.report.unlabelled) == (5, 1, 1)
    assert [(row.place, row.problem) for row in judged.report.unusable] == [
        (f"{file}, line 5", "no p_rev"),
        (f"{file}, line 6", "no p_fwd and p_rev"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]\n", "this is not a JSON object"),
        ("[" * 100_000, "this is not JSON"),
        ({"label": "A", "p_fwd": 1.5, "p_rev": 0.1}, r"p_fwd must be in \[0, 1\], got 1.5"),
        ({"label": "A", "p_fwd": True, "p_rev": 0.1}, "p_fwd is not a finite number"),
        ('{"label": "A", "gap_fwd": NaN, "gap_rev": 0.1}\n', "gap_fwd is not a finite number"),
        ({"label": "A", "score_a": 1e308, "score_b": -1e308}, "too far apart"),
        ({"label": "A", "label_mass": 2, "gap_fwd": 1, "gap_rev": 1}, "label_mass must be in"),
        ({"label": "A", "verbalized": "0.5"}, "verbalized: Input should be"),
        ({"label": "A", "samples": "[[A]]"}, "samples: Input should be a valid tuple"),
        ({"label": "A", "annotators": [1, None]}, "annotators: Input should be a valid number"),
        (OF_OURS | {"asked": {"orders": 1}}, "asked: Input should be a valid string"),
        ({"label": "A", "asked": {}}, "a line with asked needs dataset and id"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(
    line: dict[str, Any] | str, reason: str, tmp_path: Path
) -> None:
    file = write(tmp_path, {"label": "A", "annotators": [1.0]}, line)
    with pytest.raises(InvalidRequestError, match=f"judgments.jsonl, line 2: .*{reason}"):
        read_judgments([file])


def test_a_file_with_two_signals_is_refused(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"label": "A", "p_fwd": 0.9, "p_rev": 0.8},
        {"label": "A", "score_a": 0.9, "score_b": 0.8},
    )
    with pytest.raises(InvalidRequestError, match="line 2: score_a after lines with p_fwd"):
        read_judgments([file])


def pair(number: int, judge: str = "demo") -> JudgedPair:
    gaps = (float(number), 0.0)
    return JudgedPair(
        dataset="d",
        id=str(number),
        group=None,
        label="A",
        judge=judge,
        gaps=gaps,
        asked={"orders": "x"},
    )


def test_another_judges_answers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "judgments.jsonl"
    with JudgmentLog(file, judge="demo") as log:
        log.append([pair(1)])
    with (
        JudgmentLog(file, judge="other") as log,
        pytest.raises(InvalidRequestError, match="judgments of demo, not of other: give another"),
    ):
        log.read()


def test_a_users_file_is_left_unchanged(tmp_path: Path) -> None:
    content = b'{"id": "1", "label": "A", "p_fwd": 0.5, "p_rev": 0.4}\n'
    file = tmp_path / "judgments.jsonl"
    file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="was not written by evaluate"):
        JudgmentLog(file, judge="demo")
    assert file.read_bytes() == content
