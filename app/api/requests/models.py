"""JSON requests, parsed strictly: unknown fields, NaN and wrong types are errors."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SkipValidation,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from app.api.problems import invalid_request, problem_of
from app.core.comparison import (
    Comparison,
    Criterion,
    CriterionDefaults,
    Guarantee,
    Label,
    LabeledComparison,
    Role,
    Turn,
)
from app.core.errors import InvalidRequestError, RequestError, ScopeJudgeError
from app.judging.judge import Asked
from scope_judge.records import ExampleError


def encodable(text: str) -> str:
    """The text itself; raises ValueError if it is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "the text is not valid Unicode: it contains half of a surrogate pair"
        ) from None
    return text


def _kind(value: Any) -> Literal["list", "text"]:
    return "list" if isinstance(value, list) else "text"


def _id_kind(value: Any) -> Literal["number", "text"]:
    return "number" if isinstance(value, int) and not isinstance(value, bool) else "text"


# Unknown fields of one object that an error names; with more, it names none.
_MOST_UNKNOWN = 10


class Strict(BaseModel):
    """Base class of requests: unknown fields and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        # Pydantic makes one error for each field: 8 MB of unknown fields took 10 s and 1 GB.
        most = len(cls.model_fields) + _MOST_UNKNOWN
        if isinstance(value, dict) and len(value) > most:
            raise ValueError(f"this object has {len(value)} fields, and the limit is {most}")
        return value


Text = Annotated[str, AfterValidator(encodable)]
# Dialects of regular expressions differ in whether U+0085 and U+FEFF are space.
NOT_BLANK = r"[^\s\x85\ufeff]"
# For the OpenAPI document only: `Comparison` refuses blank texts, with a better message.
_NOT_BLANK = Field(json_schema_extra={"pattern": NOT_BLANK})
# Validation of a list stops at the first error: 8 MB of wrong turns took a minute and 7 GB.
_NOT_EMPTY = Field(fail_fast=True, json_schema_extra={"minItems": 1})
# 2^53 - 1 is the largest integer that every JSON reader keeps exactly.
VersionNumber = Annotated[int, Field(ge=1, le=2**53 - 1)]
CalibrationName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
DIGEST = r"^[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=DIGEST)]


def _four_digits(share: float) -> float:
    # 0.1 as a float32 is 0.10000000149: it must not be another alpha, with an alarm of its own.
    rounded = round(share, 4)
    if not 0.0 < rounded < 1.0:
        raise ValueError("must be from 0.0001 to 0.9999, and is rounded to four digits")
    return rounded


Probability = Annotated[
    float,
    Field(gt=0, lt=1),
    AfterValidator(_four_digits),
    WithJsonSchema({"type": "number", "minimum": 0.0001, "maximum": 0.9999}),
]
Replace = Annotated[bool, Field(description="Remove all other examples of the set.")]
ChangeLabels = Annotated[
    bool,
    Field(
        description="Let the last label count where the pair has another one, in the set or in "
        "this batch; false refuses such a batch."
    ),
]
EvenIfInfeasible = Annotated[
    bool,
    Field(description="Continue even if an alpha in use gets no more verdicts."),
]
# Each explanation is a text that the judge writes alone.
MOST_EXPLAINED = 16
Explain = Annotated[
    bool,
    Field(
        description="Whether the judge also explains its preference, which takes longer; in a "
        f"batch of at most {MOST_EXPLAINED} comparisons."
    ),
]
DryRun = Annotated[bool, Field(description="Change nothing and show the effect.")]


_ALPHA = Field(
    description="Largest share of wrong verdicts among accepted ones; `null` accepts all, without "
    "a guarantee."
)
Alpha = Annotated[Probability | None, _ALPHA]
AlphaInUrl = Annotated[
    Probability | None,
    BeforeValidator(lambda value: None if value == "null" else value),
    _ALPHA,
]
Identifier = Annotated[
    Annotated[Text, Field(max_length=256), Tag("text")] | Annotated[int, Tag("number")],
    Discriminator(_id_kind),
]
OptionalId = Annotated[
    Identifier | None,
    Field(description="Your text or number for the pair; the answer repeats it."),
]
_IDENTIFIER = TypeAdapter[str | int | None](Identifier | None, config=ConfigDict(strict=True))


class TurnIn(Strict):
    """One message of a conversation."""

    role: Role = Field(description="Author of the message.")
    content: Annotated[Text, _NOT_BLANK] = Field(description="Text of the message.")


Question = Annotated[
    Annotated[Text, _NOT_BLANK, Tag("text")] | Annotated[list[TurnIn], _NOT_EMPTY, Tag("list")],
    Discriminator(_kind),
]
Response = Annotated[
    Annotated[Text, _NOT_BLANK, Tag("text")]
    | Annotated[list[Annotated[Text, _NOT_BLANK]], _NOT_EMPTY, Tag("list")],
    Discriminator(_kind),
]


class PairIn(Strict):
    """Two responses to a question."""

    question: Question = Field(
        description="The question: a text, or the conversation so far as a list of messages."
    )
    response_a: Response = Field(
        description="The first response: a text, or a list of texts, one per turn."
    )
    response_b: Response = Field(description="The second response, likewise.")
    id: OptionalId = None

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


class CriterionIn(Strict):
    """The criterion of a verdict; a missing field is taken from the batch, then the settings."""

    alpha: Alpha = None
    guarantee: Guarantee | None = Field(
        None,
        description="`pac`: at most alpha of the verdicts are wrong, except with probability delta "
        "of unlucky labels. `marginal`: near alpha are wrong with a good judge and many labels, "
        "without a bound.",
    )
    delta: Probability | None = Field(
        None, description="Probability that `pac` fails; only with `pac`."
    )
    calibration: CalibrationName | None = Field(None, description="Name of the calibration set.")

    def criterion(
        self, defaults: CriterionDefaults, batch: "CriterionIn | None" = None
    ) -> Criterion:
        """The complete criterion; what is missing is that of the batch, or of the settings.

        Raises:
            InvalidRequestError: `delta` was given with the guarantee "marginal".
        """
        levels = (self,) if batch is None else (self, batch)
        alpha = next((c.alpha for c in levels if "alpha" in c.model_fields_set), defaults.alpha)
        guarantee = next((c.guarantee for c in levels if c.guarantee), defaults.guarantee)
        delta = next((c.delta for c in levels if c.delta is not None), defaults.delta)
        if guarantee == "marginal" and self.delta is not None:
            raise invalid_field("delta", 'only allowed with "guarantee": "pac"')
        return Criterion(
            alpha=alpha,
            guarantee=guarantee,
            delta=delta if guarantee == "pac" else None,
            calibration=next((c.calibration for c in levels if c.calibration), "default"),
        )


def invalid_field(field: str, reason: str) -> InvalidRequestError:
    """The error of one field that is valid alone, but not with the others."""
    return InvalidRequestError(f"{field}: {reason}", faults=((field, reason),))


class JudgeIn(PairIn, CriterionIn):
    """One comparison to judge."""

    explain: Explain = False

    def asked(self, defaults: CriterionDefaults, batch: "JudgeBatchIn | None" = None) -> Asked:
        """Returns what to judge. Raises RequestError if that cannot be judged as written."""
        return self.comparison(), self.criterion(defaults, batch)


Item = TypeVar("Item", bound=BaseModel)
Read = TypeVar("Read")


class PostedItems(Generic[Read]):
    """The items of a batch, each of which is read on its own.

    Attributes:
        ids: The caller's id of each item; None if it has none.
        items: Each item as `convert` makes it, or the error that prevents it.
    """

    def __init__(
        self, model: type[Item], posted: Sequence[Any], convert: Callable[[Item], Read]
    ) -> None:
        self.ids: list[str | int | None] = []
        self.items: list[Read | RequestError] = []
        for value in posted:
            try:
                item = model.model_validate(value)
                self.ids.append(getattr(item, "id", None))
                self.items.append(convert(item))
            except ValidationError as exc:
                faults = exc.errors(include_url=False, include_input=False, include_context=False)
                self.ids.append(_sound_id(value))
                self.items.append(invalid_request(faults))
            except RequestError as exc:
                # Its frames would keep the whole batch until a garbage collection.
                self.items.append(exc.with_traceback(None))

    @property
    def read(self) -> list[Read]:
        """The items without an error, in order."""
        return [item for item in self.items if not isinstance(item, RequestError)]

    def errors(self, failed: Iterable[tuple[int, ScopeJudgeError]]) -> list[ExampleError]:
        """All errors of the batch, in order.

        Args:
            failed: (place in `read`, error) of the items that were not judged.
        """
        later, places = dict(failed), itertools.count()
        errors = (
            item if isinstance(item, RequestError) else later.get(next(places))
            for item in self.items
        )
        return [
            ExampleError(index=i, id=self.ids[i], error=problem_of(error))
            for i, error in enumerate(errors)
            if error is not None
        ]


def _sound_id(value: Any) -> str | int | None:
    """The id of an item that cannot be parsed; None if the id itself is invalid."""
    try:
        return _IDENTIFIER.validate_python(value.get("id") if isinstance(value, dict) else None)
    except ValidationError:
        return None


class JudgeBatchIn(CriterionIn):
    """Comparisons to judge in one engine call; its criterion is the items' default."""

    explain: Explain = False
    # `PostedItems` validates them, after the route has checked how many there are.
    comparisons: list[SkipValidation[JudgeIn]] = Field(description="The comparisons.")


class ExampleIn(PairIn):
    """A comparison with a person's label."""

    label: Label = Field(description="The better response (`A`, `B`), or `tie`.")

    def labelled(self) -> LabeledComparison:
        """The labeled comparison; raises InvalidComparisonError like `comparison`."""
        return LabeledComparison(comparison=self.comparison(), label=self.label)


class LabeledBatchIn(Strict):
    """Labeled examples to judge for one calibration set."""

    calibration: CalibrationName = Field(
        "default", description="Name of the calibration set that the scores are for."
    )
    # `PostedItems` validates them, after the route has checked how many there are.
    examples: list[SkipValidation[ExampleIn]] = Field(description="The labeled examples.")


class CalibrateIn(LabeledBatchIn):
    """A labeled batch for one calibration set."""

    calibration: CalibrationName = Field(
        "default", description="Name of the set, which is created if it does not exist."
    )
    replace: Replace = False
    change_labels: ChangeLabels = True
    even_if_infeasible: EvenIfInfeasible = False
    dry_run: DryRun = False


class PoolIn(Strict):
    """Comparisons of the traffic, to be judged now and labeled later."""

    # `PostedItems` validates them, after the route has checked how many there are.
    comparisons: list[SkipValidation[PairIn]] = Field(description="The pairs, without labels.")
    alpha: Probability | None = Field(
        None,
        description="The alpha to label for: a new set with too few pairs for its first test is "
        "refused.",
    )
    delta: Probability | None = Field(None, description="The delta to label for.")
    even_if_infeasible: bool = Field(
        False, description="Add pairs even if the set gives verdicts, which ends them."
    )


class RollbackIn(Strict):
    """The version to roll back to."""

    version: VersionNumber = Field(description="The version to restore.")
    dry_run: DryRun = False


class DeletionQuery(Strict):
    """The parameters of a deletion, in the URL; a misspelt one deletes nothing."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    dry_run: DryRun = False


# Each threshold is a computation of a few milliseconds.
_MOST_ALPHAS = 32


class AlphasQuery(Strict):
    """Alphas whose `pac` thresholds are asked for together, in the URL."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: Annotated[
        list[Probability],
        Field(
            default_factory=list,
            max_length=_MOST_ALPHAS,
            description="Alpha whose `pac` threshold to show; repeat for more.",
        ),
    ]
    delta: Annotated[
        Probability | None,
        Field(description="Probability that the guarantee of one of them fails."),
    ] = None

    def levels(self, default_delta: float) -> list[tuple[float, float]]:
        """Each alpha once, in order, with delta.

        Raises:
            InvalidRequestError: There is a delta without an alpha.
        """
        alphas = list(dict.fromkeys(self.alpha))
        if not alphas:
            if self.delta is not None:
                raise invalid_field("delta", "only allowed with alpha, e.g. ?alpha=0.1&alpha=0.15")
            return []
        delta = default_delta if self.delta is None else self.delta
        return [(alpha, delta) for alpha in alphas]
