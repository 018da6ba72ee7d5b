"""JSON of POST /v1/systemone and POST /v1/decisions: a choice between two texts is a comparison.

The shapes are those of vLLM 0.32.0 (`entrypoints/generate/structured_decisions`) and of the package
openai 3.52.0 (`types/decision.py`).
"""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.api.requests.models import AlphaInUrl, CriterionIn, Strict, Text, encodable
from app.api.requests.rewards import question_turns
from app.core.comparison import Comparison, Criterion, Turn
from app.core.errors import BatchTooLargeError, InvalidComparisonError
from app.judging.judge import Asked

# An option of OpenAI's dialect may be a boolean.
Value = str | bool
# As many as OpenAI allows; SCOPE_MAX_PENDING may allow fewer.
_MOST_QUESTIONS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A question as a comparison.

    Args:
        name: Name of the question; None if it has none.
        first: The option whose text is response A.
        second: The option whose text is response B.
        others: An option that is not judged, because it stands for an abstention; or none.
        abstain_as: The choice of the answer if the judge abstains; None for the likelier option.
        asked: What the judge is asked.
    """

    name: str | None
    first: Value
    second: Value
    others: tuple[Value, ...]
    abstain_as: Value | None
    asked: Asked


# A question of either dialect: its place in the body, for errors; its name; the conversation that
# the judge reads; and its options in their order, each with the text that is judged.
_Asked = tuple[str, str | None, tuple[Turn, ...], Sequence[tuple[Value, str]]]


def _only_choice(kind: str) -> str:
    if kind != "choice":
        raise ValueError(
            f"this judge answers questions of the type 'choice', and this one is {kind[:32]!r}: "
            "a calibration covers the choice between two texts only"
        )
    return kind


def _options_wanted(given: int) -> str:
    return (
        f"it has {given} options, and a judge compares two: send two, or three with one of them in "
        "`abstain_as`"
    )


def _json_text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ValueError("lists and objects are nested too deep") from None


def _message_text(value: Any) -> Any:
    return value if isinstance(value, str) else question_turns([_user(value)])[0].content


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


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

    def decisions(
        self, criterion: Criterion, query: DecisionOptions, *, most_characters: int
    ) -> list[Decision]:
        """The questions as comparisons.

        Args:
            criterion: The criterion of all of them.
            query: The options in the URL.
            most_characters: Most characters of all comparisons' questions together, which repeat
                the state or the input.

        Raises:
            BatchTooLargeError: They have more characters.
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
            decisions.append(_decision(asked, criterion, abstain_as))
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


def _decision(asked: _Asked, criterion: Criterion, abstain_as: str | None) -> Decision:
    place, name, question, options = asked
    values = [value for value, _ in options]
    if len(set(values)) < len(values):
        raise InvalidComparisonError(f"{place}: two of its options have the same value")
    if len(values) == 2 and abstain_as in values:
        raise InvalidComparisonError(
            f"{place}: `abstain_as` is one of its two options, and an abstention would look "
            "like a choice: use another text, or make it a third option"
        )
    several = len(values) > 2
    compared = [option for option in options if not several or option[0] != abstain_as]
    if len(compared) != 2:
        raise InvalidComparisonError(f"{place}: {_options_wanted(len(values))}")
    (first, first_text), (second, second_text) = compared
    try:
        comparison = Comparison(question, (first_text,), (second_text,))
    except InvalidComparisonError as exc:
        raise InvalidComparisonError(f"{place}: {exc.detail}") from None
    return Decision(
        name=name,
        first=first,
        second=second,
        others=tuple(option[0] for option in options if option not in compared),
        abstain_as=abstain_as,
        asked=(comparison, criterion),
    )


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _with_instructions(turns: tuple[Turn, ...], instructions: str) -> tuple[Turn, ...]:
    """The conversation with the instructions of a question in its last turn of the user."""
    *before, last = turns
    if last.role != "user":
        return (*turns, Turn("user", instructions)) if instructions.strip() else turns
    return (*before, Turn("user", _paragraphs((last.content, instructions))))
