"""Files and words of any content: a parser returns a valid value, or refuses as promised."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.errors import (
    InvalidRequestError,
    RequestError,
)
from app.evaluation.benchmarks.catalogue import load_benchmark
from app.evaluation.curve import labeled_scores_of
from app.evaluation.judgments.answers import parse_confidence, parse_verdict
from app.evaluation.judgments.jsonl import JudgmentLog, read_judgments
from app.files.reading import read_rows
from app.files.shapes import REQUIRED, known_shape
from app.ports import Generated

Parsed = TypeVar("Parsed")
Refusal = TypeVar("Refusal", bound=Exception)

# tmp_path is one folder for all examples: each example overwrites its file.
fuzzed = settings(
    deadline=None,
    max_examples=100,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

WORDS = ("A", "B", "tie", "user", "pac", "marginal", "default", "Which?", "", " ", "\ud800", "\0")
numbers = st.integers() | st.floats() | st.sampled_from([0.1, 1, 2, -0.0, 10**400, 2**53])
# Includes lone surrogates, which JSON can express.
texts = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | numbers | texts


def outcome(parse: Callable[[], Parsed], *refusals: type[Refusal]) -> Parsed | Refusal:
    """The parsed value, or the promised refusal; any other exception is raised."""
    try:
        return parse()
    except refusals as exc:
        return exc


def values_of(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Any JSON value, often with names that have a meaning."""
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(names) | texts, inner, max_size=5)
        ),
        max_leaves=15,
    )


LINE_NAMES = (
    "question",
    "response_a",
    "response_b",
    "label",
    "id",
    "group",
    "dataset",
    "judge",
    "gap_fwd",
    "gap_rev",
    "p_fwd",
    "p_rev",
    "score_a",
    "score_b",
    "label_mass",
    "verbalized",
    "annotators",
    "samples",
    "failed",
    "asked",
    "text",
    "complete",
)
judged_lines = st.fixed_dictionaries(
    {"label": st.sampled_from(["A", "B", "tie", None])},
    optional={name: scalars | st.sampled_from(["A", 0.5, 1.5]) for name in LINE_NAMES[4:]},
)
pair_lines = st.fixed_dictionaries(
    {"label": st.sampled_from(["A", "B", "tie", None])},
    optional={name: texts | values_of(LINE_NAMES) for name in LINE_NAMES if name != "label"},
)
lines = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\xff", b"", b" ", b"{}", b"[]", b"null", b"[" * 5000, b'{"dataset": "']),
    *(
        found.map(lambda value: json.dumps(value).encode())
        for found in (judged_lines, pair_lines, values_of(LINE_NAMES))
    ),
)
files = st.lists(lines, max_size=4).map(b"\n".join) | st.binary(max_size=40)


@fuzzed
@given(files)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_file_of_the_evaluation_is_read_or_refused_by_name(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    file = tmp_path / f"data{suffix}"
    file.write_bytes(content)
    readers: tuple[Callable[[], object], ...] = (
        lambda: load_benchmark(str(file)),
        lambda: read_judgments([file]),
        lambda: labeled_scores_of(read_judgments([file]), str(file)),
    )
    for read in readers:
        found = outcome(read, InvalidRequestError)
        # A data set is named after its file.
        assert not isinstance(found, InvalidRequestError) or "data" in str(found)


@fuzzed
@given(files)
def test_a_log_of_judgments_is_continued_or_refused_and_kept(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "judgments.jsonl"
    file.write_bytes(content)

    def opened() -> int:
        with JudgmentLog(file, judge="j") as log:
            return len(log.read())

    found = outcome(opened, InvalidRequestError)
    assert isinstance(found, int) or str(file) in str(found)
    # At most a last line that was cut off may be gone.
    kept = file.read_bytes()
    assert content == kept or content[: content.rfind(b"\n") + 1] == kept


@fuzzed
@given(files)
def test_a_file_for_the_service_is_rows_or_an_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "pairs"
    file.write_bytes(content)
    found = outcome(lambda: list(read_rows(file)), InvalidRequestError)
    if isinstance(found, InvalidRequestError):
        assert str(file) in found.detail
        return
    for row in found:
        shape = known_shape(row.fields)
        if shape is not None:
            fields = outcome(partial(shape.fields, row.fields), RequestError)
            assert isinstance(fields, RequestError) or set(REQUIRED) <= set(fields)
            label = outcome(partial(shape.label_in, row.fields), RequestError)
            assert isinstance(label, RequestError) or label in ("A", "B", "tie", None)


WORDS_OF_JUDGES = ("[[A]]", "[[B]]", "A", "B", "0.9", "1", "1.", "0", ".5", "50%", "9" * 400, "1e5")
spoken = st.lists(
    st.sampled_from(WORDS_OF_JUDGES) | st.sampled_from([" ", "\n", ". ", "score: ", "/", "(", "-"]),
    max_size=6,
).map("".join)


@fuzzed
@given(st.builds(Generated, spoken | st.text(), st.booleans()))
def test_any_words_of_a_judge_are_a_verdict_and_a_score_or_nothing(answer: Generated) -> None:
    assert parse_verdict(answer) in ("A", "B", None)
    score = parse_confidence(answer)
    assert score is None or 0.0 <= score <= 1.0
