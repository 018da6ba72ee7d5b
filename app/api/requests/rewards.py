"""JSON of the reward routes: groups of responses in, one reward for each response out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    SkipValidation,
    Tag,
)

from app.api.requests.models import AlphaInUrl, CriterionIn, PostedItems, Strict, Text, encodable
from app.api.requests.rendered import checked, rendered, response_in_query, without_endings
from app.core.comparison import CriterionDefaults, Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.core.messages import question_of, response_of
from app.judging.rewards import Group, RewardRule


class MessageIn(BaseModel):
    """A chat message as trainers hand it over; fields that are not named here are ignored."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(description="`system`, `user` or `assistant`.")
    content: str | list[dict[str, Any]] = Field(
        description='Text, or parts such as `{"type": "text", "text": "..."}`.'
    )


def question_turns(value: Any) -> tuple[Turn, ...]:
    """The turns of a question; raises ValueError if it is neither a text nor a conversation."""
    try:
        question = question_of(value)
    except InvalidComparisonError as exc:
        raise ValueError(str(exc)) from None
    turns: list[dict[str, Any]] = (
        [{"role": "user", "content": question}] if isinstance(question, str) else question
    )
    return checked(tuple(Turn(turn["role"], encodable(turn["content"])) for turn in turns))


def response_text(value: Any) -> str:
    """The text of a response; raises ValueError if it is neither a text nor a message."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        raise ValueError("this must be one text, or a list with one message of the assistant")
    try:
        return encodable(str(response_of(value, "a response")))
    except InvalidComparisonError as exc:
        raise ValueError(str(exc)) from None


def _reference(text: str) -> str:
    if not text.strip():
        raise ValueError("the reference is blank: nothing can be compared with it")
    return text


def _kind_of_opponents(value: Any) -> Literal["number", "text"]:
    return "text" if isinstance(value, str) else "number"


# `Any`, because the document would describe the tuple of turns, which no request has.
MessagesQuestion = Annotated[
    Any,
    PlainValidator(question_turns, json_schema_input_type=str | list[MessageIn]),
    Field(description="The question: a text, or the conversation so far as a list of messages."),
]
MessagesResponse = Annotated[
    str,
    PlainValidator(response_text, json_schema_input_type=str | MessageIn | list[MessageIn]),
]
Reference = Annotated[MessagesResponse, AfterValidator(_reference)]
_Responses = Annotated[
    list[MessagesResponse],
    Field(
        min_length=1,
        fail_fast=True,
        description="The responses: texts, or lists with one assistant message.",
    ),
]
OpponentsIn = Annotated[
    Annotated[Literal["all"], Tag("text")] | Annotated[int, Field(ge=1), Tag("number")],
    Discriminator(_kind_of_opponents),
    Field(
        description="Opponents of a response: `all`, or a number k, which makes n k / 2 "
        "comparisons of n responses."
    ),
]


WithComparisons = Annotated[bool, Field(description="Return the judgments, too.")]
IsRendered = Annotated[
    bool,
    Field(
        description="The texts have the policy's chat template: parse turns and remove end markers."
    ),
]


class RewardOptions(CriterionIn):
    """How comparisons become rewards; a missing field of the criterion is the setting's."""

    reward: Literal["hard", "soft"] = Field(
        "hard",
        description="Points of an accepted comparison: 1 or -1 (`hard`), or 2 p_bar - 1 from the "
        "response's side (`soft`).",
    )
    empty: Literal["loses", "null"] = Field(
        "loses",
        description="Reward of an empty response, which is not compared: -1 (`loses`), or none "
        "(`null`).",
    )
    thoughts: Literal["remove", "keep"] = Field(
        "remove",
        description="A thought at the beginning of a response, `<think>...</think>`: `remove` "
        "judges the text after it, and a response without any is empty.",
    )
    overlong: Literal["loses", "null"] = Field(
        "null",
        description="Reward of a response that is too long for the judge in each of its "
        "comparisons: -1 (`loses`), or none (`null`).",
    )

    def rule(self, defaults: CriterionDefaults) -> RewardRule:
        """The rule; raises InvalidRequestError if `delta` comes with the guarantee "marginal"."""
        same = {"empty", "thoughts", "overlong", "opponents", "min_accepted"}
        return RewardRule(
            criterion=self.criterion(defaults), kind=self.reward, **self.model_dump(include=same)
        )


def _number_or_share(value: Any) -> Any:
    """Checks `min_accepted`, in one sentence instead of one for each type of number."""
    is_number = type(value) is int and value >= 1
    if not is_number and not (type(value) is float and 0 < value < 1):
        raise ValueError("it is a whole number from 1, or a share above 0 and below 1")
    return value


class GroupOptions(RewardOptions):
    """How the comparisons of a group become rewards."""

    opponents: OpponentsIn = "all"
    min_accepted: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)],
        BeforeValidator(_number_or_share),
    ] = Field(
        1,
        description="Accepted comparisons that a reward needs: a number, or, below 1, their share "
        "of the response's comparisons.",
    )


class GroupIn(Strict):
    """Responses to one question."""

    question: MessagesQuestion
    responses: _Responses

    def asked(self) -> Group:
        """The group of responses."""
        return Group(question=self.question, responses=tuple(self.responses))


class RewardGroupIn(GroupIn, GroupOptions):
    """One group of responses, which are compared with each other."""

    rendered: IsRendered = False
    comparisons: WithComparisons = False


class GroupOfManyIn(GroupIn):
    """Responses to one question, which are compared with each other or with a reference."""

    reference: Annotated[
        Reference | None,
        Field(description="Response to compare the others with."),
    ] = None

    def asked(self) -> Group:
        """The group of responses."""
        return replace(super().asked(), reference=self.reference)


class RewardGroupsIn(GroupOptions):
    """Several groups, which are judged in one engine call."""

    # `all` validates them, after the route has checked how many there are.
    groups: list[SkipValidation[GroupOfManyIn]] = Field(description="The groups.")
    rendered: IsRendered = False
    comparisons: WithComparisons = False

    def all(self) -> list[Group | RequestError]:
        """Validates each group on its own."""
        return PostedItems(GroupOfManyIn, self.groups, GroupOfManyIn.asked).items


class RewardReferenceIn(GroupOfManyIn, RewardOptions):
    """Responses to one question, each of which is compared with a reference."""

    reference: Reference = Field(description="Response to compare the others with.")
    rendered: IsRendered = False
    comparisons: WithComparisons = False


T = TypeVar("T")


class RewardQuery(RewardOptions):
    """The options of a reward in the URL, because OpenRLHF's body has none."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: AlphaInUrl = None


class OpenRlhfIn(BaseModel):
    """The body that OpenRLHF sends to `--reward.remote_url`."""

    # A new version may send more fields.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)
    query: list[Text] = Field(
        description="Rendered prompt and response of each sample, in one text."
    )
    prompts: list[Text] = Field(description="The rendered prompt of each sample.")
    labels: list[Any] = Field(description="The reference response of each sample.")

    def groups(self) -> list[Group]:
        """One group for each sample; raises InvalidRequestError if a sample cannot be read."""
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise InvalidRequestError("query, prompts and labels must have the same length")
        return [
            Group(
                question=_read(f"prompts.{i}", rendered, prompt),
                responses=(_read(f"query.{i}", partial(_response, prompt), query),),
                reference=_read(f"labels.{i}", _reference_of_label, label),
            )
            for i, (query, prompt, label) in enumerate(
                zip(self.query, self.prompts, self.labels, strict=True)
            )
        ]


def _read(field: str, parse: Callable[[Any], T], value: Any) -> T:
    """The parsed value; raises InvalidRequestError with the field if it cannot be parsed."""
    try:
        return parse(value)
    except (ValueError, InvalidComparisonError) as exc:
        raise InvalidRequestError(f"{field}: {exc}", faults=((field, str(exc)),)) from None


def _reference_of_label(label: Any) -> str:
    reference = response_text(label) if label is not None else ""
    if not reference.strip():
        raise ValueError(
            "the sample has no reference response to compare with: name its field with "
            "--data.label_key"
        )
    return reference


def _response(prompt: str, query: str) -> str:
    response = response_in_query(query, prompt)
    if response is None:
        raise ValueError(
            "it does not begin with its prompt: the prompt was cut (raise the longest prompt), or "
            "the tokenizer does not reproduce it"
        )
    return without_endings(response)
