"""The dialects of decision servers: what their authors publish, and wrong answers."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.decision import Decision
from openai.types.decision_create_params import DecisionCreateParams
from pydantic import TypeAdapter

from app.core.errors import JudgmentFailedError
from app.judges.engines.decision_dialects import (
    DecisionDialect,
    OpenAiDialect,
    OptionProbabilities,
    SystemOneDialect,
    decimals_of,
)
from tests.unit.judges.engines.decisions_fake import LABEL_MASS, FakeDecisions

Json = dict[str, Any]
ORDERS = [("a", "b"), ("b", "a")]
ONE, TWO = "Response 1", "Response 2"


def answer_of(dialect: DecisionDialect) -> Any:
    """The answer of the fake server to both orders."""
    shape = "openai" if isinstance(dialect, OpenAiDialect) else "systemone"
    server = FakeDecisions(path=dialect.path, shape=shape)
    return server._answer(dialect.path, dialect.body("the-judge", "Which one?", ORDERS))


def test_requests_and_answers_are_those_of_openais_package() -> None:
    """The package openai 3.52.0 accepts the request, and the answers that the fake server gives."""
    body = OpenAiDialect().body("the-judge", "Which?", ORDERS)
    read = TypeAdapter(DecisionCreateParams).validate_python(body)
    assert json.loads(json.dumps(read["input"])) == "Which?"
    details = {
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    }
    answer = answer_of(OpenAiDialect())
    answer["usage"] |= details
    decision = Decision.model_validate(answer)
    assert [one.type for one in decision.answers] == ["choice", "choice"]
    assert decision.model_dump(mode="json") == answer
    found = OpenAiDialect().read(answer, 2)
    assert isinstance(found, list)
    assert len(found) == 2


def test_the_published_answer_of_a_hosted_model_is_read() -> None:
    """The answer in the documentation of the crate typesafe-jev 0.2.0, without its third option.

    Its question and options are named as this service names them.
    """
    one = {
        "type": "choice",
        "choice": ONE,
        "confidence": 0.81,
        "probabilities": {ONE: 0.88, TWO: 0.12},
    }
    answer = {
        "model": "jev-1.13.0",
        "answers": {"q1": one},
        "usage": {"input_tokens": 318, "output_tokens": 34},
    }
    assert SystemOneDialect().read(answer, 1) == [OptionProbabilities(0.88, 0.12, None)]
    with_third = {**one, "probabilities": {ONE: 0.88, TWO: 0.12, "sales": 0.0}}
    found = SystemOneDialect().read({"answers": {"q1": with_third}}, 1)
    assert isinstance(found, JudgmentFailedError)


def in_answer(change: Callable[[Json], Any]) -> Callable[[Json], Any]:
    """Changes the answer to the second question."""

    def changed(answer: Json) -> Json:
        change(answer["answers"]["q2"])
        return answer

    return changed


def probabilities(first: Any, second: Any, *, names: tuple[str, ...] = (ONE, TWO)) -> Any:
    return in_answer(
        lambda one: one.update(probabilities=dict(zip(names, (first, second), strict=False)))
    )


def turned(one: Json) -> None:
    """Gives each probability to the other option."""
    low, high = sorted(one["probabilities"].values())
    other = next(name for name in one["probabilities"] if name != one["choice"])
    one["probabilities"] = {one["choice"]: low, other: high}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a["answers"].pop("q2") and a, "exactly the questions"),
        (
            lambda a: {"answers": {**a["answers"], "q3": a["answers"]["q1"]}},
            "exactly the questions",
        ),
        (
            lambda a: {"answers": {"q1": a["answers"]["q1"], "Q2": a["answers"]["q2"]}},
            "exactly the questions",
        ),
        (lambda a: {**a, "answers": None}, "exactly the questions"),
        (lambda a: {**a, "answers": [1, 2]}, "exactly the questions"),
        (lambda a: {**a, "answers": {"q1": 1, "q2": 2}}, "another type of question"),
        (in_answer(lambda one: one.update(type="refusal")), "declines to answer"),
        (in_answer(lambda one: one.update(type="noul")), "another type of question"),
        (probabilities(0.5, 0.5, names=(ONE, "Three")), "other options"),
        (probabilities(1.0, 0.0, names=(ONE,)), "other options"),
        (probabilities(0.5, 0.5, names=("response 1", "response 2")), "other options"),
        (in_answer(lambda one: one.pop("probabilities")), "other options"),
        (in_answer(lambda one: one.update(probabilities=[0.5, 0.5])), "other options"),
        (probabilities(math.nan, 0.5), "not probabilities"),
        (probabilities(math.inf, 0.0), "not probabilities"),
        (probabilities(10**400, 0), "not probabilities"),
        (probabilities(1.2, -0.2), "not probabilities"),
        (probabilities(0.7, 0.4), "not probabilities"),
        (probabilities(0.3, 0.3), "not probabilities"),
        (probabilities("0.5", "0.5"), "not probabilities"),
        (probabilities(True, False), "not probabilities"),
        (in_answer(turned), "another option than"),
        (in_answer(lambda one: one.update(choice="Three")), "another option than"),
        (in_answer(lambda one: one.pop("choice")), "another option than"),
        (in_answer(lambda one: one.update(choice=[1])), "another option"),
        (lambda a: {**a, "diagnostics": {"q2": {"label_mass": math.nan}}}, "label mass"),
    ],
)
def test_a_wrong_answer_is_an_error(change: Callable[[Json], Any], says: str) -> None:
    found = SystemOneDialect().read(change(answer_of(SystemOneDialect())), 2)
    assert isinstance(found, JudgmentFailedError)
    assert says in found.detail


@pytest.mark.parametrize(
    "change",
    [
        lambda answers: [answers[0]],
        lambda answers: [answers[0], answers[0]],
        lambda answers: [answers[0], {**answers[1], "name": None}],
        lambda answers: [*answers, {"type": "refusal", "name": None}],
        lambda answers: [answers[0], 7],
        lambda answers: {"q1": answers[0], "q2": answers[1]},
        lambda answers: [answers[0], {"type": "refusal", "name": "q2"}],
        lambda answers: [answers[0], {**answers[1], "probabilities": [{"value": ONE}]}],
        lambda answers: [
            answers[0],
            {**answers[1], "probabilities": 2 * answers[1]["probabilities"][:1]},
        ],
        lambda answers: [
            answers[0],
            {**answers[1], "probabilities": [{"value": True, "probability": 1.0}]},
        ],
    ],
)
def test_a_wrong_answer_in_openais_dialect_is_an_error(change: Callable[[Any], Any]) -> None:
    answer = answer_of(OpenAiDialect())
    found = OpenAiDialect().read({**answer, "answers": change(answer["answers"])}, 2)
    assert isinstance(found, JudgmentFailedError)


@pytest.mark.parametrize("diagnostics", [None, {}, {"q1": {}}, [], {"q1": None, "q2": 3}])
def test_the_label_mass_is_that_of_the_diagnostics_or_of_the_answer(diagnostics: Any) -> None:
    answer = answer_of(SystemOneDialect())
    masses = [LABEL_MASS, None, 0.0]
    read = [SystemOneDialect().read(answer, 2)]
    answer["diagnostics"] = diagnostics
    read.append(SystemOneDialect().read(answer, 2))
    # As SGLang does.
    for one in answer["answers"].values():
        one["x_label_mass"] = 0.0
    read.append(SystemOneDialect().read(answer, 2))
    for mass, orders in zip(masses, read, strict=True):
        assert isinstance(orders, list)
        assert [order.label_mass for order in orders] == [mass] * 2


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
