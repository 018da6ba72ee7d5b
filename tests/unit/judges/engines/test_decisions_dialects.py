"""The dialects of decision servers against what their authors publish."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.decision import Decision
from openai.types.decision_create_params import DecisionCreateParams
from pydantic import TypeAdapter

from app.core.errors import JudgmentFailedError
from app.judges.engines.decisions_dialects import (
    DecisionDialect,
    OpenAiDialect,
    SystemOneDialect,
    decimals_of,
)
from app.ports import ChoiceQuestion, OptionProbabilities
from tests.unit.judges.engines.decisions_fake import FakeDecisions
from tests.unit.judges.engines.decisions_scene import QUESTION

ORDERS = [("a", "b"), ("b", "a")]


def test_requests_and_answers_are_those_of_openais_package() -> None:
    """The package openai 3.52.0 accepts the request, and the answers that the fake server gives."""
    body = OpenAiDialect().body("gpt-6-luna", QUESTION, "Which?", ORDERS)
    read = TypeAdapter(DecisionCreateParams).validate_python(body)
    assert json.loads(json.dumps(read["input"])) == "Which?"
    details = {
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    }
    answer: Any = FakeDecisions(name="gpt-6-luna", path="/decisions", shape="openai")._answer(
        "/decisions", body
    )
    answer["usage"] |= details
    decision = Decision.model_validate(answer)
    assert [one.type for one in decision.answers] == ["choice", "choice"]
    assert decision.model_dump(mode="json") == answer
    found = OpenAiDialect().read(answer, QUESTION, 2)
    assert isinstance(found, list)
    assert len(found) == 2


def test_the_published_answer_of_a_hosted_model_is_read() -> None:
    """The answer in the documentation of the crate typesafe-jev 0.2.0, without its third option.

    Its question and options are named as this service names them.
    """
    answer = {
        "model": "jev-1.13.0",
        "answers": {
            "q1": {
                "type": "choice",
                "choice": "billing",
                "confidence": 0.81,
                "probabilities": {"billing": 0.88, "technical": 0.12},
            }
        },
        "usage": {"input_tokens": 318, "output_tokens": 34},
    }
    question = ChoiceQuestion(instructions="Which?", options=("billing", "technical"))
    assert SystemOneDialect().read(answer, question, 1) == [OptionProbabilities(0.88, 0.12, None)]


def test_the_published_third_option_is_refused() -> None:
    answers = {
        "q1": {
            "type": "choice",
            "choice": "billing",
            "confidence": 0.81,
            "probabilities": {"billing": 0.88, "technical": 0.12, "sales": 0.0},
        }
    }
    question = ChoiceQuestion(instructions="Which?", options=("billing", "technical"))
    found = SystemOneDialect().read({"answers": answers}, question, 1)
    assert isinstance(found, JudgmentFailedError)


@pytest.mark.parametrize(
    ("shown", "decimals"),
    [
        ([0.88, 0.12], 2),
        ([0.5, 0.123], 3),
        ([0.0, 1.0, 0.5], 1),
        ([1e-05], 5),
        ([0.8807970285415649], None),
        ([0.12345678], None),
    ],
)
def test_decimals_are_counted(shown: list[float], decimals: int | None) -> None:
    assert decimals_of(shown) == decimals


def test_zeros_and_ones_show_no_decimals() -> None:
    with pytest.raises(ValueError, match="empty"):
        decimals_of([0.0, 1.0])


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3)
words = st.sampled_from(
    ("answers", "q1", "q2", "name", "type", "choice", "probabilities", "One", "Two", "value")
)
things = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=15,
)
shares = st.dictionaries(words, st.floats() | scalars, max_size=3) | st.lists(
    st.fixed_dictionaries({"value": words, "probability": scalars}), max_size=3
)
nearly = st.fixed_dictionaries(
    {"type": st.just("choice"), "choice": words, "probabilities": shares | things},
    optional={"name": words, "x_label_mass": scalars},
)


@given(
    st.fixed_dictionaries(
        {"answers": st.dictionaries(words, nearly | things) | st.lists(nearly | things)},
        optional={"diagnostics": things},
    ),
    st.sampled_from([SystemOneDialect(), OpenAiDialect()]),
    st.integers(1, 2),
)
def test_any_answer_is_probabilities_or_an_error(
    answer: Any, dialect: DecisionDialect, asked: int
) -> None:
    found = dialect.read(answer, QUESTION, asked)
    if isinstance(found, JudgmentFailedError):
        return
    assert len(found) == asked
    for one in found:
        assert 0.0 <= one.first <= 1.0
        assert 0.0 <= one.second <= 1.0
        assert abs(one.first + one.second - 1.0) <= 0.02
        assert one.label_mass is None or 0.0 <= one.label_mass <= 1.0
