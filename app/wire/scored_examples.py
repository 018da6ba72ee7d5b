"""JSON of judged examples: scores and labels, without texts, as sets export and import them."""

from heapq import nsmallest
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, SkipValidation, ValidationError

from app.core.calibration import Calibration, LabelledExample
from app.core.clusters import ClusterRule
from app.core.comparison import Label
from app.core.looks import MOST_LOOKS, Looks
from app.core.noise import SecondLabels
from app.core.score import Score
from app.service.calibration.batch import JudgedBatch, JudgedExample
from app.wire.answers import Out
from app.wire.calibrations import ExampleErrorOut
from app.wire.problems import invalid_request
from app.wire.requests import (
    ByGroup,
    Clusters,
    Digest,
    DryRun,
    EvenIfInfeasible,
    GroupName,
    Groups,
    LabelNoise,
    LookSize,
    Probability,
    Replace,
    Strict,
    Text,
    invalid_field,
)

# An import with more faults is refused without reading the rest.
_MOST_FAULTY = 10


class ScoredExampleOut(Out):
    """The scores and the label of one example.

    The label is null for a pair that has none yet. `question` is a digest of the question alone;
    null in examples of older releases. `group` is null for an example without a group. `gap_fwd`
    and `gap_rev` are the logit of response A minus that of response B, with response A shown first
    and second. `gap_rev` is null for a judge that sees no order, `label_mass` for one that does not
    say it.
    """

    digest: str
    gap_fwd: float | None
    gap_rev: float | None
    label_mass: float | None
    label: Label | None
    question: str | None
    group: str | None

    @classmethod
    def of(cls, example: JudgedExample) -> "ScoredExampleOut":
        """Converts a judged example."""
        judged = example.example
        score = None if judged is None else judged.score
        return cls(
            digest=example.digest,
            gap_fwd=score and score.gap_fwd,
            gap_rev=score and score.gap_rev,
            label_mass=score and score.label_mass,
            label="tie" if judged is None else judged.label,
            question=judged and judged.question,
            group=judged and judged.group,
        )


class ScoresOut(Out):
    """A judged batch that was added to no set: its scores in order, without the failed examples."""

    judge: str
    fingerprint: str
    scores: list[ScoredExampleOut]
    ties: int
    failed: int
    errors: list[ExampleErrorOut]

    @classmethod
    def of(cls, judge: str, batch: JudgedBatch, errors: list[ExampleErrorOut]) -> "ScoresOut":
        """Converts a batch.

        Args:
            judge: Name of the judge.
            batch: The judged batch.
            errors: All failed examples: those of the batch, and those that could not be parsed.
        """
        judged = (example for example in batch.examples if isinstance(example, JudgedExample))
        return cls(
            judge=judge,
            fingerprint=batch.fingerprint,
            scores=[ScoredExampleOut.of(example) for example in judged],
            ties=batch.ties,
            failed=len(errors),
            errors=errors,
        )


class PlanOut(Out):
    """The planned looks of a set, as an import takes them."""

    sizes: list[int]
    until_coverage: float
    alpha: float
    delta: float


class ExamplesOut(Out):
    """One page of the examples of a calibration set, sorted by digest; texts are not kept.

    Read the next page with `after`, the last digest of this page. If `version` differs between two
    pages, the set has changed: begin again. `release` is the release of scope-judge that made the
    version; null if it was 0.1.0. `groups` are those that the set declares or has examples of.
    """

    name: str
    version: int
    judge: str
    fingerprint: str
    label_noise: float
    clusters: ClusterRule
    groups: list[str]
    by_group: bool
    looks: PlanOut | None
    runtimes: list[str]
    min_label_mass: float
    n: int
    release: str | None
    examples: list[ScoredExampleOut]

    @classmethod
    def of(cls, calibration: Calibration, *, after: str, limit: int) -> "ExamplesOut":
        """Makes a page.

        Args:
            calibration: The set.
            after: Only examples with a larger digest.
            limit: Most examples.
        """
        table = calibration.table
        # `nsmallest` lets other threads run in between, and one call of `sorted` does not.
        page = nsmallest(limit, (digest for digest in table if digest > after))
        return cls(
            name=calibration.name,
            version=calibration.version,
            judge=calibration.judge,
            fingerprint=calibration.fingerprint,
            label_noise=calibration.label_noise,
            clusters=calibration.clusters,
            groups=calibration.named_groups,
            by_group=calibration.by_group,
            looks=calibration.looks and PlanOut.model_validate(calibration.looks),
            runtimes=list(calibration.runtimes),
            min_label_mass=calibration.min_label_mass,
            n=calibration.n,
            release=calibration.release,
            examples=[
                ScoredExampleOut.of(JudgedExample(digest=digest, example=table[digest]))
                for digest in page
            ],
        )


class ScoredExampleIn(Strict):
    """One example as the judge has scored it; its label is null if a pool has it without one."""

    digest: Digest
    gap_fwd: FiniteFloat
    gap_rev: FiniteFloat | None
    label_mass: Annotated[FiniteFloat, Field(ge=0, le=1)] | None
    label: Label | None
    question: Digest | None = None
    group: GroupName | None = None

    def judged(self) -> JudgedExample:
        """The example as a set keeps it."""
        score = Score(gap_fwd=self.gap_fwd, gap_rev=self.gap_rev, label_mass=self.label_mass)
        example = LabelledExample(
            score=score, label=self.label, question=self.question, group=self.group
        )
        return JudgedExample(digest=self.digest, example=example)


class TieIn(Strict):
    """One tie without scores, as releases up to 0.3.0 write it.

    It is the label of a pair that the set has, and changes nothing in another set.
    """

    digest: Digest
    gap_fwd: None = None
    gap_rev: None = None
    label_mass: None = None
    label: Literal["tie"]
    question: Digest | None = None
    group: GroupName | None = None

    def judged(self) -> JudgedExample:
        """The example as a batch keeps it."""
        return JudgedExample(digest=self.digest, example=None)


def _read_judged(value: Any) -> JudgedExample:
    """Validates one judged example; raises ValidationError."""
    is_tie = (
        isinstance(value, dict) and value.get("label") == "tie" and value.get("gap_fwd") is None
    )
    model: type[TieIn | ScoredExampleIn] = TieIn if is_tie else ScoredExampleIn
    return model.model_validate(value).judged()


# As many as a set can have labels, and more than anybody writes twice.
_MOST_SECOND_LABELS = 1_000_000
_SecondCount = Annotated[int, Field(ge=0, le=_MOST_SECOND_LABELS)]


class SecondLabelsIn(Strict):
    """How often the labels of two people differ, for the label noise of a set."""

    pairs: Annotated[_SecondCount, Field(ge=1, description="Pairs that two people labeled.")]
    disagreements: Annotated[_SecondCount, Field(description="Pairs with two different labels.")]


class PlanIn(Strict):
    """The planned looks of an exported set."""

    sizes: Annotated[list[LookSize], Field(min_length=1, max_length=MOST_LOOKS, fail_fast=True)]
    until_coverage: Probability
    alpha: Probability
    delta: Probability

    def looks(self) -> Looks:
        """The plan; raises InvalidRequestError if the sizes do not rise."""
        try:
            return Looks.of(self.model_dump())
        except ValueError as exc:
            raise invalid_field("looks", str(exc)) from None


class ImportIn(Strict):
    """Judged examples for one calibration set; all become one version, or none does.

    With `second_labels` there are no examples: the label noise becomes the lower 95% bound that
    they give.
    """

    judge: Annotated[Text, Field(max_length=256)] | None = None
    fingerprint: Digest
    label_noise: LabelNoise = None
    clusters: Clusters = None
    groups: Groups
    by_group: ByGroup = None
    looks: Annotated[
        PlanIn | None, Field(description="Planned looks of a new set, as exported.")
    ] = None
    replace: Replace = False
    even_if_infeasible: EvenIfInfeasible = False
    dry_run: DryRun = False
    runtimes: Annotated[list[Annotated[Text, Field(max_length=256)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    # `batch` validates them one by one, so that other threads can run in between.
    examples: list[SkipValidation[ScoredExampleIn | TieIn]]
    second_labels: SecondLabelsIn | None = None

    def batch(self) -> JudgedBatch:
        """Validates all examples.

        Raises:
            InvalidRequestError: An example is invalid; the error names the first ten. Or other
                changes come with second labels, or these say nothing.
        """
        if self.second_labels is not None:
            return self._noise(self.second_labels)
        judged: list[JudgedExample] = []
        faults: list[Any] = []
        for i, value in enumerate(self.examples):
            try:
                judged.append(_read_judged(value))
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
            label_noise=self.label_noise,
            action="import",
            clusters=self.clusters,
            replaces=self.replace,
            runtimes=tuple(self.runtimes),
            groups=tuple(self.groups),
            by_group=self.by_group,
            looks=None if self.looks is None else self.looks.looks(),
        )

    def _noise(self, second: SecondLabelsIn) -> JudgedBatch:
        if self.examples or self.replace or self.label_noise is not None or self.clusters:
            raise invalid_field("second_labels", "send them without examples and other changes")
        if second.disagreements > second.pairs:
            raise invalid_field("second_labels", "more disagreements than pairs")
        return JudgedBatch.of_second_labels(
            SecondLabels(pairs=second.pairs, disagreements=second.disagreements),
            fingerprint=self.fingerprint,
        )
