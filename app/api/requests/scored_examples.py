"""JSON of judged examples that a set imports: scores and labels, without texts."""

import math
from dataclasses import replace
from typing import Annotated, Any

from pydantic import (
    Field,
    SkipValidation,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from app.api.problems import invalid_request
from app.api.requests.models import (
    ChangeLabels,
    Digest,
    DryRun,
    EvenIfInfeasible,
    Replace,
    Strict,
    Text,
)
from app.core.calibration import LabeledExample
from app.core.comparison import Label
from app.core.preference import NoScore, Score, score_of_numbers
from app.sets.change import Judged, JudgedBatch

# An import with more faults is refused without reading the rest.
_MOST_FAULTY = 10


class NumbersIn(Strict):
    """The score of one judge."""

    gap_fwd: float | None = Field(
        description="Logit of response A minus that of response B, with response A shown first; "
        "null, with the next two fields, if the judge gave no score."
    )
    gap_rev: float | None = Field(
        description="The same difference with response B shown first; null for a judge that sees "
        "no order."
    )
    label_mass: Annotated[float, Field(ge=0, le=1)] | None = Field(
        description="Probability of the two label tokens together, in the order where it is "
        "smaller; null if the judge does not report it."
    )

    @field_validator("gap_rev", "label_mass")
    @classmethod
    def _is_of_a_score(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("gap_fwd", 0.0) is None:
            raise ValueError("must be null, because gap_fwd is")
        return value

    def score(self) -> Score | NoScore:
        """The score, or that the judge gave none."""
        numbers = (self.gap_fwd, self.gap_rev, self.label_mass)
        return score_of_numbers(*(math.nan if number is None else number for number in numbers))


class ScoredExampleIn(NumbersIn):
    """One example as the judge has scored it; its label is null if a pool has it without one."""

    digest: Digest = Field(
        description="Digest of the comparison and the judge: 64 hexadecimal digits."
    )
    label: Label | None = Field(
        description="The better response; null for a pair without a label, `tie` for one that a "
        "pool keeps."
    )
    question: Digest | None = Field(
        None, description="Digest of the question alone; null if it is unknown."
    )
    is_reversed: bool = Field(
        False,
        description="Whether response A comes after response B by code points, as in the answer of "
        "POST /calibrate/scores.",
    )
    small: NumbersIn | None = Field(
        None, description="The score of a cascade's small judge; null for a judge alone."
    )

    def judged(self) -> Judged:
        """The example as a set keeps it."""
        small = None if self.small is None else self.small.score()
        score = replace(self.score(), small=small)
        return self.digest, LabeledExample(
            score=score,
            label=self.label,
            question=self.question,
            is_reversed=self.is_reversed,
        )


class ImportIn(Strict):
    """Judged examples for one calibration set; all become one version, or none does."""

    judge: Annotated[Text, Field(max_length=256)] | None = Field(
        None, description="Name of the judge, for people."
    )
    fingerprint: Digest = Field(
        description="Fingerprint of the judge that scored the examples, which must be the "
        "service's."
    )
    replace: Replace = False
    change_labels: ChangeLabels = True
    even_if_infeasible: EvenIfInfeasible = False
    dry_run: DryRun = False
    # `batch` validates them one by one, so that other threads can run in between.
    examples: list[SkipValidation[ScoredExampleIn]] = Field(
        description="Scores of POST /calibrate/scores or GET /calibrations/{name}/examples; the "
        "last one of a digest counts."
    )

    def batch(self) -> JudgedBatch:
        """Validates all examples.

        Raises:
            InvalidRequestError: An example is invalid; the error names the first ten.
        """
        judged: list[Judged] = []
        faults: list[Any] = []
        for i, value in enumerate(self.examples):
            try:
                judged.append(ScoredExampleIn.model_validate(value).judged())
            except ValidationError as exc:
                errors = exc.errors(include_url=False, include_input=False, include_context=False)
                faults += [{**fault, "loc": ("examples", i, *fault["loc"])} for fault in errors]
            if len(faults) > _MOST_FAULTY:
                break
        if faults:
            raise invalid_request(faults)
        return JudgedBatch(
            examples=judged,
            fingerprint=self.fingerprint,
            action="import",
            replaces=self.replace,
            change_labels=self.change_labels,
        )
