"""JSON of judged examples: scores and labels, without texts, as sets export and import them."""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, SkipValidation, ValidationError

from app.api.answers.problems import invalid_request
from app.api.requests.models import (
    Digest,
    DryRun,
    EvenIfInfeasible,
    Replace,
    Strict,
    Text,
)
from app.core.calibration import Calibration, LabeledExample
from app.core.comparison import Label
from app.core.score import Score
from app.sets.batch import JudgedBatch, JudgedExample
from scope_judge import records

# An import with more faults is refused without reading the rest.
_MOST_FAULTY = 10


def _scored(example: JudgedExample) -> records.ScoredExample:
    judged = example.example
    return records.ScoredExample(
        digest=example.digest,
        gap_fwd=judged.score.gap_fwd,
        gap_rev=judged.score.gap_rev,
        label_mass=judged.score.label_mass,
        label=judged.label,
        question=judged.question,
    )


def scores(
    judge: str, batch: JudgedBatch, errors: Sequence[records.ExampleError]
) -> records.Scores:
    """Converts a judged batch.

    Args:
        judge: Name of the judge.
        batch: The batch.
        errors: All failed examples: those of the batch, and those that could not be parsed.
    """
    return records.Scores(
        judge=judge,
        fingerprint=batch.fingerprint,
        scores=tuple(_scored(each) for each in batch.examples if isinstance(each, JudgedExample)),
        ties=batch.ties,
        failed=len(errors),
        errors=tuple(errors),
    )


def example_page(calibration: Calibration, *, after: str, limit: int) -> records.ExamplePage:
    """Makes a page.

    Args:
        calibration: The set.
        after: Only examples with a larger digest.
        limit: Most examples.
    """
    table = calibration.table
    # `nsmallest` lets other threads run in between, and one call of `sorted` does not.
    page = nsmallest(limit, (digest for digest in table if digest > after))
    return records.ExamplePage(
        name=calibration.name,
        version=calibration.version,
        judge=calibration.judge,
        fingerprint=calibration.fingerprint,
        runtimes=calibration.runtimes,
        min_label_mass=calibration.min_label_mass,
        n=calibration.n,
        release=calibration.release,
        examples=tuple(
            _scored(JudgedExample(digest=digest, example=table[digest])) for digest in page
        ),
    )


class ScoredExampleIn(Strict):
    """One example as the judge has scored it; its label is null if a pool has it without one."""

    digest: Digest
    gap_fwd: FiniteFloat
    gap_rev: FiniteFloat | None
    label_mass: Annotated[FiniteFloat, Field(ge=0, le=1)] | None
    label: Label | None
    question: Digest | None = None

    def judged(self) -> JudgedExample:
        """The example as a set keeps it."""
        score = Score(gap_fwd=self.gap_fwd, gap_rev=self.gap_rev, label_mass=self.label_mass)
        example = LabeledExample(score=score, label=self.label, question=self.question)
        return JudgedExample(digest=self.digest, example=example)


class ImportIn(Strict):
    """Judged examples for one calibration set; all become one version, or none does."""

    judge: Annotated[Text, Field(max_length=256)] | None = None
    fingerprint: Digest
    replace: Replace = False
    even_if_infeasible: EvenIfInfeasible = False
    dry_run: DryRun = False
    runtimes: Annotated[list[Annotated[Text, Field(max_length=256)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    # `batch` validates them one by one, so that other threads can run in between.
    examples: list[SkipValidation[ScoredExampleIn]]

    def batch(self) -> JudgedBatch:
        """Validates all examples.

        Raises:
            InvalidRequestError: An example is invalid; the error names the first ten.
        """
        judged: list[JudgedExample] = []
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
            runtimes=tuple(self.runtimes),
        )
