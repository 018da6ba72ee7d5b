"""JSON of judged examples that are imported into a calibration set."""

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, SkipValidation, ValidationError

from app.core.calibration import LabelledScore
from app.core.comparison import Label
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.wire.problems import invalid_request
from app.wire.requests import Clusters, Digest, LabelNoise, Strict, Text

# An import with more faults is refused without reading the rest.
_MOST_FAULTY = 10


class ScoredExampleIn(Strict):
    """One example as the judge has scored it; its label is null if a pool has it without one."""

    digest: Digest
    gap_fwd: FiniteFloat
    gap_rev: FiniteFloat
    label_mass: Annotated[FiniteFloat, Field(ge=0, le=1)]
    label: Label | None
    question: Digest | None = None

    def judged(self) -> JudgedExample:
        """The example as a set keeps it."""
        score = LabelledScore(
            self.gap_fwd, self.gap_rev, self.label_mass, self.label, self.question
        )
        return JudgedExample(self.digest, score)


class TieIn(Strict):
    """One example without a preferred side and without scores, which leaves the set."""

    digest: Digest
    gap_fwd: None = None
    gap_rev: None = None
    label_mass: None = None
    label: Literal["tie"]
    question: Digest | None = None

    def judged(self) -> JudgedExample:
        """The example as a batch keeps it."""
        return JudgedExample(self.digest, None)


def _read_judged(value: Any) -> JudgedExample:
    """Validates one judged example; raises ValidationError."""
    # A tie of a pool has scores, and any other tie has none.
    is_tie = (
        isinstance(value, dict) and value.get("label") == "tie" and value.get("gap_fwd") is None
    )
    model: type[TieIn | ScoredExampleIn] = TieIn if is_tie else ScoredExampleIn
    return model.model_validate(value).judged()


class ImportIn(Strict):
    """Judged examples for one calibration set; all become one version, or none does."""

    judge: Annotated[Text, Field(max_length=256)] | None = None
    fingerprint: Digest
    label_noise: LabelNoise = None
    clusters: Clusters = None
    # `batch` validates them one by one, so that other threads can run in between.
    examples: list[SkipValidation[ScoredExampleIn | TieIn]]

    def batch(self) -> JudgedBatch:
        """Validates all examples.

        Raises:
            InvalidRequestError: An example is invalid; the error names the first ten.
        """
        judged: list[JudgedExample] = []
        faults: list[Any] = []
        for i, value in enumerate(self.examples):
            try:
                judged.append(_read_judged(value))
            except ValidationError as exc:
                found = exc.errors(include_url=False, include_input=False, include_context=False)
                faults += [{**fault, "loc": ("examples", i, *fault["loc"])} for fault in found]
            if len(faults) > _MOST_FAULTY:
                break
        if faults:
            raise invalid_request(faults)
        return JudgedBatch(
            judged, self.fingerprint, self.label_noise, action="import", clusters=self.clusters
        )
