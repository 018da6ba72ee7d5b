"""POST /v1/systemone and POST /v1/decisions: a choice between two texts is a comparison.

The shapes are those of vLLM 0.32.0 (`entrypoints/generate/structured_decisions`) and of the package
openai 3.52.0 (`types/decision.py`).
"""

import json
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.api.answers.judgments import usage_of_request
from app.api.problems import PROBLEMS
from app.api.requests.models import AlphaInUrl, CriterionIn, Strict, Text, encodable
from app.api.requests.rewards import question_turns
from app.api.routing import AGED, JsonRequest, JsonRoute, age_headers, as_json
from app.core.comparison import Case, Comparison, Turn
from app.core.errors import (
    BatchTooLargeError,
    InvalidComparisonError,
    JudgmentFailedError,
    ScopeJudgeError,
)
from scope_judge import records

router = APIRouter(tags=["decisions"], route_class=JsonRoute, responses=PROBLEMS)

# An option of OpenAI's dialect may be a boolean.
Value = str | bool
# As many as OpenAI allows; SCOPE_MAX_PENDING may allow fewer.
_MOST_QUESTIONS = 400
# A question of either dialect: its place in the body, for errors; its name; the conversation that
# the judge reads; and its options in their order, each with the text that is judged.
_Asked = tuple[str, str | None, tuple[Turn, ...], Sequence[tuple[Value, str]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A question as a comparison.

    Args:
        name: Name of the question; None if it has none.
        options: The option whose text is response A, that of response B, and one that is not
            judged, because it stands for an abstention, if there is one.
        abstain_as: The choice of the answer if the judge abstains; None for the likelier option.
    """

    name: str | None
    options: tuple[Value, ...]
    abstain_as: Value | None
    comparison: Comparison

    @classmethod
    def of(cls, asked: _Asked, abstain_as: str | None) -> "Decision":
        """Finds the two options to compare.

        Raises:
            InvalidComparisonError: The question does not choose between two texts.
        """
        place, name, question, options = asked
        values = [value for value, _ in options]
        if len(set(values)) < len(values):
            raise InvalidComparisonError(f"{place}: two of its options have the same value")
        if len(values) == 2 and abstain_as in values:
            raise InvalidComparisonError(
                f"{place}: `abstain_as` is one of its two options, and an abstention would look "
                "like a choice: use another text, or make it a third option"
            )
        compared = [one for one in options if len(values) == 2 or one[0] != abstain_as]
        if len(compared) != 2:
            raise InvalidComparisonError(
                f"{place}: it has {len(values)} options, and a judge compares two: send two, or "
                "three with one of them in `abstain_as`"
            )
        first, second = (text for _, text in compared)
        try:
            comparison = Comparison(question, (first,), (second,))
        except InvalidComparisonError as exc:
            raise InvalidComparisonError(f"{place}: {exc.detail}") from None
        judged = [value for value, _ in compared]
        return cls(
            name=name,
            options=(*judged, *(value for value in values if value not in judged)),
            abstain_as=abstain_as,
            comparison=comparison,
        )

    def choice(self, judged: records.Judgment) -> Value:
        """The likelier option, the first one of equals; or `abstain_as` for an abstention."""
        if judged.verdict == "abstain" and self.abstain_as is not None:
            return self.abstain_as
        if judged.p_bar is None:
            place = f"question {self.name!r}" if self.name else "a question"
            raise JudgmentFailedError(
                f"{place}: the judge abstains ({judged.reason}) and prefers neither option: send "
                "`abstain_as`, the choice for an abstention"
            )
        return self.options[judged.preferred == "B"]

    def probabilities(self, judged: records.Judgment) -> dict[Value, float]:
        """The probability of each option; 0 for an option that only stands for an abstention.

        If the judge has no preference, such an option has 1, and the others have 0.
        """
        p_bar = judged.p_bar
        shares = (0.0, 0.0, 1.0) if p_bar is None else (p_bar, 1.0 - p_bar, 0.0)
        return dict(zip(self.options, shares, strict=False))


def _confidence(judged: records.Judgment) -> float:
    """The larger probability times the label mass, which is vLLM's definition."""
    mass = 1.0 if judged.label_mass is None else judged.label_mass
    return (judged.confidence or 0.0) * mass


def _only_choice(kind: str) -> str:
    if kind != "choice":
        raise ValueError(
            f"this judge answers questions of the type 'choice', and this one is {kind[:32]!r}: "
            "a calibration covers the choice between two texts only"
        )
    return kind


def _json_text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ValueError("lists and objects are nested too deep") from None


def _message_text(value: Any) -> Any:
    return (
        value
        if isinstance(value, str)
        else question_turns([{"role": "user", "content": value}])[0].content
    )


_Kind = Annotated[
    str,
    AfterValidator(_only_choice),
    WithJsonSchema({"type": "string", "const": "choice"}),
    Field(description="`choice`; other types are refused."),
]
_JsonText = Annotated[
    str,
    AfterValidator(encodable),
    BeforeValidator(_json_text),
    Field(description="Text, or JSON that the judge reads as text."),
]
_MessageText = Annotated[
    str,
    AfterValidator(encodable),
    BeforeValidator(_message_text),
    Field(description="Text, or a list of parts with texts."),
]
_Unused = Annotated[Any, Field(description="Ignored.")]


class DecisionOptions(CriterionIn):
    """Options that the standard does not have."""

    abstain_as: Text | None = Field(
        None,
        description="The `choice` for an abstention; can be the third of three options.",
    )


class DecisionQuery(DecisionOptions):
    """The options in the URL, for clients that send no other fields; those of the body win."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: AlphaInUrl = None


class _DecisionsIn(DecisionOptions):
    model: Annotated[
        Any,
        Field(description="Ignored."),
    ] = None

    @abstractmethod
    def _asked(self) -> Iterator[_Asked]:
        """The questions in their order."""

    def decisions(self, query: DecisionOptions, *, most_characters: int) -> list[Decision]:
        """The questions as comparisons; `query` are the options in the URL.

        Raises:
            BatchTooLargeError: The comparisons, which repeat the state or the input, have more
                characters together.
            InvalidComparisonError: A question does not choose between two texts.
        """
        abstain_as = query.abstain_as if self.abstain_as is None else self.abstain_as
        decisions, characters = list[Decision](), 0
        for asked in self._asked():
            characters += sum(len(turn.content) for turn in asked[2])
            if characters > most_characters:
                raise BatchTooLargeError(
                    "the state or the input is judged once for each question, and all of them have "
                    f"more than {most_characters} characters (SCOPE_MAX_BODY_BYTES): ask fewer "
                    "questions at once"
                )
            decisions.append(Decision.of(asked, abstain_as))
        return decisions


class SystemOneQuestionIn(Strict):
    """A choice between two options, whose texts are the responses."""

    type: _Kind
    instructions: _JsonText = ""
    criteria: dict[Text, _JsonText] = Field(
        description="Two options and their texts, or three with `abstain_as`; null if the option's "
        "name is its text.",
    )


class SystemOneIn(_DecisionsIn):
    """Questions about one state."""

    state: _JsonText
    instructions: _JsonText = ""
    questions: dict[Text, SystemOneQuestionIn] = Field(
        min_length=1, max_length=_MOST_QUESTIONS, description="1 to 400 questions by name."
    )

    def _asked(self) -> Iterator[_Asked]:
        for name, question in self.questions.items():
            texts = (self.state, self.instructions, question.instructions)
            options = [(value, text or value) for value, text in question.criteria.items()]
            turn = Turn("user", _paragraphs(texts))
            yield f"questions.{name[:64]}", name, (turn,), options


class ChoiceIn(Strict):
    """An option; without a description its value is its text."""

    value: Text | bool = Field(description="The option.")
    description: Text | None = Field(None, description="Text of the option; default: its value.")

    @property
    def text(self) -> str:
        """The text to judge."""
        return self.description or (
            self.value if isinstance(self.value, str) else str(self.value).lower()
        )


class OpenAiQuestionIn(Strict):
    """A choice between two options, whose texts are the responses."""

    type: _Kind
    name: Text | None = Field(None, description="Name of the question; the answer repeats it.")
    instructions: _MessageText
    choices: Annotated[list[ChoiceIn], Field(fail_fast=True)] = Field(
        description="Two options, or three with `abstain_as`. An option has `value` and "
        "`description`."
    )


class OpenAiDecisionsIn(_DecisionsIn):
    """Questions about one input."""

    input: Annotated[Any, Field(description="Text, or a list of messages.")]
    questions: Annotated[list[OpenAiQuestionIn], Field(fail_fast=True)] = Field(
        min_length=1, max_length=_MOST_QUESTIONS, description="1 to 400 questions."
    )
    prompt_cache_key: _Unused = None
    prompt_cache_options: _Unused = None
    safety_identifier: _Unused = None

    def _asked(self) -> Iterator[_Asked]:
        try:
            turns = question_turns(self.input)
        except ValueError as exc:
            raise InvalidComparisonError(f"input: {exc}") from None
        for i, question in enumerate(self.questions):
            conversation = _with_instructions(turns, question.instructions)
            options = [(choice.value, choice.text) for choice in question.choices]
            yield f"questions.{i}", question.name, conversation, options


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _with_instructions(turns: tuple[Turn, ...], instructions: str) -> tuple[Turn, ...]:
    """The conversation with the instructions of a question in its last turn of the user."""
    *before, last = turns
    if last.role != "user":
        return (*turns, Turn("user", instructions)) if instructions.strip() else turns
    return (*before, Turn("user", _paragraphs((last.content, instructions))))


# The decisions of a request with their judgments, in the order of the questions.
_Judged = Sequence[tuple[Decision, records.Judgment]]


def _of_one(decision: Decision, judged: records.Judgment) -> dict[str, Any]:
    """Answers a question in both dialects. `scope` is the answer of POST /judge."""
    return {
        "type": "choice",
        "choice": decision.choice(judged),
        "confidence": _confidence(judged),
        "scope": replace(judged, id=decision.name),
    }


def _system_one(found: _Judged, judge: str) -> dict[str, Any]:
    masses = {decision.name: judged.label_mass for decision, judged in found}
    return {
        "id": f"decision-{uuid.uuid4().hex}",
        "model": judge,
        "answers": {
            decision.name: {
                **_of_one(decision, judged),
                "probabilities": decision.probabilities(judged),
            }
            for decision, judged in found
        },
        "usage": {"input_tokens": usage_of_request().prompt_tokens, "output_tokens": 0},
        "diagnostics": {
            name: {"label_mass": mass} for name, mass in masses.items() if mass is not None
        },
    }


def _open_ai(found: _Judged, judge: str) -> dict[str, Any]:
    tokens = usage_of_request().prompt_tokens
    return {
        "model": judge,
        "answers": [
            {
                "name": decision.name,
                **_of_one(decision, judged),
                "probabilities": [
                    {"value": value, "probability": probability}
                    for value, probability in decision.probabilities(judged).items()
                ],
            }
            for decision, judged in found
        ],
        "usage": {
            "input_tokens": tokens,
            "output_tokens": 0,
            "total_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


Options = Annotated[DecisionQuery, Query()]


@router.post("/v1/systemone", responses=AGED)
async def system_one(body: SystemOneIn, options: Options, request: JsonRequest) -> Response:
    """Answers questions that choose between two texts.

    `choice` is the likelier option even if the judge abstains, unless you send `abstain_as`. The
    guarantee covers the verdict in `scope`.
    """
    return await _answer(_system_one, body, options, request)


@router.post("/v1/decisions", responses=AGED)
async def decisions(body: OpenAiDecisionsIn, options: Options, request: JsonRequest) -> Response:
    """Answers questions that choose between two texts, in OpenAI's format.

    See POST /v1/systemone.
    """
    return await _answer(_open_ai, body, options, request)


async def _answer(
    answer: Callable[[_Judged, str], object],
    body: SystemOneIn | OpenAiDecisionsIn,
    options: DecisionQuery,
    request: JsonRequest,
) -> Response:
    """Judges all questions in one batch; an error of one fails the request."""
    services = request.services
    request.check_comparisons(len(body.questions))
    options.criterion(services.defaults)  # raises if the criterion of the URL is invalid
    criterion = body.criterion(services.defaults, options)
    request.check_criterion(criterion)
    most = services.limits.max_body_bytes
    decisions = await request.run(partial(body.decisions, options, most_characters=most))
    async with services.admission.admit(len(decisions)):
        outcomes = await services.judge.judge_batch(
            [(decision.comparison, criterion) for decision in decisions], by=request.caller.name
        )
    for outcome in outcomes:
        if isinstance(outcome, ScopeJudgeError):
            raise outcome
    judgments = [outcome.judgment for outcome in outcomes if isinstance(outcome, Case)]
    found = list(zip(decisions, judgments, strict=True))
    return await request.run(
        as_json,
        partial(answer, found, services.identity.name),
        headers=age_headers(outcomes),
    )
