"""Every parser on any input: it returns a valid value, or refuses with the promised error."""

import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from app.api.keys import KeyFile, KeyFileError, parse_key_file
from app.api.problems import invalid_request
from app.api.requests.models import (
    CalibrateIn,
    ExampleIn,
    JudgeBatchIn,
    JudgeIn,
    PoolIn,
    PoolPairIn,
    PostedItems,
    RollbackIn,
)
from app.core.comparison import CriterionDefaults
from app.core.errors import (
    InvalidRequestError,
    JudgmentFailedError,
    RequestError,
    StartupError,
    StoreCorruptError,
)
from app.evaluation.benchmarks.catalogue import load_benchmark
from app.evaluation.curve import labeled_scores_of
from app.evaluation.judgments.answers import parse_confidence, parse_verdict
from app.evaluation.judgments.jsonl import JudgmentLog, read_judgments
from app.files.reading import read_rows
from app.files.shapes import REQUIRED
from app.files.suggestion import shape_for
from app.judges.engines.openai_dialects import ChatDialect
from app.judges.engines.thinking import PLAIN
from app.judges.prompts import PromptTemplate, load_template
from app.ports import Entry, Generated, Head, LabelLogits
from app.sets.codec import decode
from app.sets.trail import readable_changes
from app.settings import Settings, read_settings
from app.wiring.stores import make_store

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

NAMES = (
    "question",
    "response_a",
    "response_b",
    "alpha",
    "guarantee",
    "delta",
    "calibration",
    "group",
    "groups",
    "id",
    "label",
    "comparisons",
    "examples",
    "version",
    "role",
    "content",
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


values = values_of(NAMES)
turns = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": texts | values}),
    max_size=2,
)
# Most fields of a valid comparison, with any values for the rest.
comparisons = st.fixed_dictionaries(
    {"question": texts | turns, "response_a": texts | values, "response_b": texts},
    optional=dict.fromkeys(("alpha", "guarantee", "delta", "calibration", "id"), scalars),
)
examples = st.fixed_dictionaries(
    {"question": texts, "response_a": texts, "response_b": texts, "label": texts},
    optional={"id": scalars, "alpha": values},
)
bodies = st.one_of(
    values,
    comparisons,
    st.fixed_dictionaries(
        {"comparisons": st.lists(comparisons | values, max_size=3)},
    ),
    st.fixed_dictionaries(
        {"examples": st.lists(examples | values, max_size=3)},
        optional={"calibration": texts, "replace": scalars},
    ),
    st.fixed_dictionaries({"version": scalars}),
)


@fuzzed
@given(st.sampled_from([JudgeIn, JudgeBatchIn, CalibrateIn, PoolIn, RollbackIn]), bodies)
def test_a_body_is_a_model_that_reads_back_or_a_problem_without_the_input(
    model: type[BaseModel], body: Any
) -> None:
    found = outcome(lambda: model.model_validate(body), ValidationError)
    if isinstance(found, ValidationError):
        problem = invalid_request(found.errors())
        assert problem.detail
        assert 1 <= len(problem.faults) <= 10
        return
    if isinstance(found, JudgeBatchIn):
        defaults = CriterionDefaults(alpha=0.1, guarantee="marginal", delta=0.1)
        asked = PostedItems(JudgeIn, found.comparisons, lambda item: item.asked(defaults, found))
        assert all(not isinstance(one, RequestError) or one.detail for one in asked.items)
    items: list[Any] = []
    if isinstance(found, CalibrateIn):
        items = PostedItems(ExampleIn, found.examples, lambda item: item).items
    elif isinstance(found, PoolIn):
        items = PostedItems(PoolPairIn, found.comparisons, lambda item: item).items
    for item in items:
        if isinstance(item, InvalidRequestError):
            assert item.faults
        else:
            assert type(item).model_validate_json(item.model_dump_json()) == item
    if not items and not isinstance(found, JudgeBatchIn):
        assert model.model_validate_json(found.model_dump_json(exclude_unset=True)) == found


stored_texts = st.sampled_from(
    [
        "0.1",
        "0.0",
        "nan",
        "inf",
        "-1",
        '[1.0, 2.0, 0.9, "A"]',
        '[1, 2, NaN, "A"]',
        "[[[[",
        "[1.0, 2.0, 0.9, null]",
        f'[1.0, 2.0, 0.9, "tie", "{"c" * 64}"]',
        '[1.0, 2.0, 0.9, "A", null, "math"]',
        '["math"]',
        '{"sizes":[2,1],"until_coverage":0.3,"alpha":0.1,"delta":0.1}',
        '{"sizes":"ab"}',
        "one",
    ]
) | st.text(max_size=12)
stored = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ["write_id", "judge", "fingerprint", "changed_at", "release", "runtimes"],
            stored_texts | values,
        ),
        "format": st.just(1) | values,
        "version": st.integers(-1, 9),
    },
)
stored_examples = (
    st.dictionaries(st.just("d" * 64) | st.text(max_size=3), stored_texts | values, max_size=4)
    | values
)
stored_sets = st.tuples(stored, stored_examples).map(
    lambda lines: zlib.compress("\n".join(map(json.dumps, lines)).encode())
)


@fuzzed
@given(stored_sets | st.binary(max_size=40))
def test_a_stored_set_is_a_calibration_with_finite_scores_or_corrupt(
    found: bytes,
) -> None:
    calibration = outcome(lambda: decode("x", found), StoreCorruptError)
    if isinstance(calibration, StoreCorruptError):
        return
    for labeled in calibration.examples.values():
        numbers = labeled.score.fields.values()
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert labeled.label in ("A", "B", None, "tie")


@fuzzed
@given(st.text() | values_of(("version", "action", "at", "by", "n")).map(json.dumps))
def test_an_entry_of_a_trail_is_read_or_left_out(text: str) -> None:
    assert len(readable_changes("x", [Entry(Head("w", 1), text)])) <= 1


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("SCOPE_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


setting_names = st.sampled_from([f"SCOPE_{name.upper()}" for name in Settings.model_fields])
setting_texts = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30
) | st.sampled_from(["", "0", "-1", "1e400", "nan", "inf", "true", "auto", "memory://", "9" * 5000])


@fuzzed
@given(st.dictionaries(setting_names, setting_texts, max_size=4))
def test_settings_are_read_or_refused_without_their_values(variables: dict[str, str]) -> None:
    marker = "xyzzy-secret"
    marked = {
        name: f"{marker}{text}" if len(text) > 8 else text for name, text in variables.items()
    }
    with environment(marked):
        found = outcome(read_settings, ValueError)
    if isinstance(found, ValueError):
        assert marker not in str(found)
        assert all(line.startswith("SCOPE_") for line in str(found).splitlines())
        return
    numbers_of = [value for _, value in found if isinstance(value, float)]
    assert not any(math.isnan(number) for number in numbers_of)


TEMPLATES = (
    b'user = "{question} {answer_a} {answer_b}"',
    b'user = """{question}\n{answer_a}\n{answer_b}"""\nsystem = "Judge."\n',
    b"user = 3",
    b"[user]",
    b'user = "{question} {question} {answer_a} {answer_b}"',
    b'user = "\\ud800{question}{answer_a}{answer_b}"',
    b"x = " + b"[" * 5000,
    b"x = 1" + b"0" * 5000,
    b"x = 0001-00-00",
    b"\xff",
    b"",
)
# Parts of a valid file mixed with other bytes: pure random bytes are almost never TOML.
template_bytes = st.one_of(
    st.sampled_from(TEMPLATES),
    st.binary(max_size=60),
    st.builds(
        lambda a, noise, b, cut: a[:cut] + noise + b[cut:],
        st.sampled_from(TEMPLATES),
        st.binary(max_size=3),
        st.sampled_from(TEMPLATES),
        st.integers(0, 60),
    ),
)


@fuzzed
@given(template_bytes)
@example(b"x = " + b"[" * 5000)  # once raised RecursionError
def test_a_prompt_file_is_a_template_or_refuses_the_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "prompt.toml"
    file.write_bytes(content)
    found = outcome(lambda: load_template(file, prefill=""), StartupError)
    assert isinstance(found, PromptTemplate) or str(found).startswith("SCOPE_PROMPT_FILE=")


urls = st.text(max_size=30) | st.builds(
    lambda scheme, rest: scheme + rest,
    st.sampled_from(
        ["redis://", "rediss://", "unix://", "sqlite:///", "sqlite:", "memory://", "http://", "://"]
    ),
    st.sampled_from(
        ["", "[", "[::1", "[::1]:6379/0", ":99999", "a:b@c:d/e", "?db=x", "/\0", "h:6379/x", "%"]
    )
    | st.text(max_size=12),
)


@fuzzed
@given(urls)
@example("redis://[")  # once raised ValueError
@example("redis://user:pass\u2100phrase@host/0")  # once raised one that repeats the password
def test_a_store_url_names_a_store_or_refuses_the_start(url: str) -> None:
    found = outcome(lambda: make_store(url), StartupError)
    if isinstance(found, StartupError):
        assert "SCOPE_STORE_URL" in str(found)
        assert "phrase@" not in str(found)


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
    optional={name: texts | values for name in LINE_NAMES if name != "label"},
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
        shape = outcome(partial(shape_for, row.fields), RequestError)
        if not isinstance(shape, RequestError):
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


choices = st.fixed_dictionaries(
    {
        "message": st.fixed_dictionaries(
            {"content": spoken | scalars}, optional={"reasoning": scalars}
        ),
        "finish_reason": st.sampled_from(["stop", "length"]) | scalars | st.lists(scalars),
    }
)


@fuzzed
@given(choices | values_of(("message", "content", "finish_reason", "logprobs", "top_logprobs")))
@pytest.mark.parametrize("thinks", [False, True])
def test_any_choice_of_an_answer_is_a_text_or_a_failed_judgment(thinks: bool, choice: Any) -> None:
    dialect = ChatDialect("m", is_vllm=True, use=replace(PLAIN, thinks=thinks))
    assert isinstance(dialect.text(choice), Generated | JudgmentFailedError)
    assert isinstance(dialect.label_logits(choice), LabelLogits | JudgmentFailedError)


@fuzzed
@given(st.binary(max_size=40) | values_of(("keys", "name", "sha256", "roles")).map(json.dumps))
def test_a_file_of_keys_is_read_or_refused(content: bytes | str) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    found = outcome(lambda: parse_key_file(raw), KeyFileError)
    assert isinstance(found, KeyFile) or str(found)
