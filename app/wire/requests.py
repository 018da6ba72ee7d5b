"""What comes in over the wire, strictly: unknown fields, NaN and wrong types are errors."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    SkipValidation,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from app.core.comparison import (
    Comparison,
    Criterion,
    CriterionDefaults,
    Guarantee,
    Label,
    LabelledComparison,
    Role,
    Turn,
)
from app.core.errors import InvalidRequestError, RequestError
from app.service.judging.batches import BatchItem
from app.service.judging.judge import JudgeRequest
from app.wire.problems import invalid_request


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "the text holds half of a surrogate pair and is no valid Unicode"
        ) from None
    return text


def _kind(value: Any) -> Literal["list", "text"]:
    return "list" if isinstance(value, list) else "text"


def _id_kind(value: Any) -> Literal["number", "text"]:
    return "number" if isinstance(value, int) and not isinstance(value, bool) else "text"


_MOST_FIELDS = 128


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        # Pydantic makes an error of each: 8 MB of unknown fields took 10 s and 1 GB.
        if isinstance(value, dict) and len(value) > _MOST_FIELDS:
            raise ValueError(f"this has {len(value)} fields, far more than there are")
        return value


Text = Annotated[str, AfterValidator(_encodable)]
# Only documented here: `Comparison` refuses what is blank, in words of its own.
_WRITTEN = Field(json_schema_extra={"pattern": r"\S"})
# The first fault ends a list: 8 MB of wrong turns took a minute and 7 GB.
_SOME = Field(fail_fast=True, json_schema_extra={"minItems": 1})
# The largest whole number that every JSON reader keeps exactly.
VersionNumber = Annotated[int, Field(ge=1, le=2**53 - 1)]
CalibrationName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Probability = Annotated[FiniteFloat, Field(gt=0, lt=1)]
Alpha = Annotated[
    Probability | None,
    Field(
        description="Largest share of wrong verdicts among the accepted; null: any verdict, with "
        "no promise."
    ),
]
Identifier = Annotated[
    Annotated[Text, Field(max_length=256), Tag("text")] | Annotated[int, Tag("number")],
    Discriminator(_id_kind),
]
_IDENTIFIER = TypeAdapter[str | int | None](Identifier | None, config=ConfigDict(strict=True))


class TurnIn(_Strict):
    """One message of a conversation."""

    role: Role
    content: Annotated[Text, _WRITTEN]


Question = Annotated[
    Annotated[Text, _WRITTEN, Tag("text")] | Annotated[list[TurnIn], _SOME, Tag("list")],
    Discriminator(_kind),
]
Response = Annotated[
    Annotated[Text, _WRITTEN, Tag("text")]
    | Annotated[list[Annotated[Text, _WRITTEN]], _SOME, Tag("list")],
    Discriminator(_kind),
]


class _ComparisonIn(_Strict):
    question: Question
    response_a: Response
    response_b: Response

    def comparison(self) -> Comparison:
        """The comparison; raises InvalidComparisonError if it cannot be judged as written."""
        question = (
            (Turn("user", self.question),)
            if isinstance(self.question, str)
            else tuple(Turn(turn.role, turn.content) for turn in self.question)
        )
        return Comparison(question, _texts(self.response_a), _texts(self.response_b))


def _texts(response: str | list[str]) -> tuple[str, ...]:
    return (response,) if isinstance(response, str) else tuple(response)


class _CriterionIn(_Strict):
    """What a verdict must meet; what is left out is taken from the batch, then the settings."""

    alpha: Alpha = None
    guarantee: Guarantee | None = None
    delta: Probability | None = None
    calibration: CalibrationName | None = None

    def criterion(
        self, defaults: CriterionDefaults, batch: "_CriterionIn | None" = None
    ) -> Criterion:
        """The criterion in full; raises InvalidRequestError where `delta` has no meaning."""
        levels = (self,) if batch is None else (self, batch)
        alpha = next((c.alpha for c in levels if "alpha" in c.model_fields_set), defaults.alpha)
        guarantee = next((c.guarantee for c in levels if c.guarantee), defaults.guarantee)
        delta = next((c.delta for c in levels if c.delta is not None), defaults.delta)
        if guarantee == "marginal" and self.delta is not None:
            raise InvalidRequestError(
                'delta: only "guarantee": "pac" has one', faults=(("delta", 'only with "pac"'),)
            )
        return Criterion(
            alpha=alpha,
            guarantee=guarantee,
            delta=delta if guarantee == "pac" else None,
            calibration=next((c.calibration for c in levels if c.calibration), "default"),
        )


class JudgeIn(_ComparisonIn, _CriterionIn):
    """One comparison to judge."""

    id: Identifier | None = None

    def request(
        self, defaults: CriterionDefaults, batch: _CriterionIn | None = None
    ) -> JudgeRequest:
        """The request to the judge; raises RequestError where the item makes no sense."""
        return JudgeRequest(self.comparison(), self.criterion(defaults, batch))


_Item = TypeVar("_Item", bound=_ComparisonIn)


class InvalidItem(BaseModel):
    """An item of a batch that cannot be read; its neighbours go on."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    id: str | int | None
    error: InvalidRequestError


def _read(model: type[_Item], value: Any) -> _Item | InvalidItem:
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        faults = exc.errors(include_url=False, include_input=False, include_context=False)
        return InvalidItem(id=_sound_id(value), error=invalid_request(faults))


def _sound_id(value: Any) -> str | int | None:
    """The id of an item that cannot be read; None where the id itself is what is wrong."""
    try:
        return _IDENTIFIER.validate_python(value.get("id") if isinstance(value, dict) else None)
    except ValidationError:
        return None


class JudgeBatchIn(_CriterionIn):
    """Comparisons to judge in one engine call; what an item leaves out is taken from here."""

    # Validated by `items`, after their number has been checked.
    comparisons: list[SkipValidation[JudgeIn]]

    def items(self, defaults: CriterionDefaults) -> list[BatchItem]:
        """Validates every comparison by itself."""
        return [self._item(_read(JudgeIn, value), defaults) for value in self.comparisons]

    def _item(self, item: "JudgeIn | InvalidItem", defaults: CriterionDefaults) -> BatchItem:
        if isinstance(item, InvalidItem):
            return BatchItem(item.id, item.error)
        try:
            return BatchItem(item.id, item.request(defaults, self))
        except RequestError as exc:
            return BatchItem(item.id, exc)


class ExampleIn(_ComparisonIn):
    """A comparison that people have judged."""

    id: Identifier | None = None
    label: Label

    def labelled(self) -> LabelledComparison:
        """The labelled comparison; raises InvalidComparisonError as `comparison` does."""
        return LabelledComparison(self.comparison(), self.label)


class CalibrateIn(_Strict):
    """A labelled batch for one calibration set."""

    calibration: CalibrationName = "default"
    label_noise: Annotated[FiniteFloat, Field(ge=0, lt=0.5)] | None = Field(
        None,
        description="Probability that a label is flipped; of the whole set, kept if left out.",
    )
    # Read by `items`, when it is known that there are not too many.
    examples: list[SkipValidation[ExampleIn]]

    def items(self) -> list[ExampleIn | InvalidItem]:
        """The examples as they come out of the validation of each."""
        return [_read(ExampleIn, value) for value in self.examples]


class RollbackIn(_Strict):
    """The version to go back to."""

    version: VersionNumber
