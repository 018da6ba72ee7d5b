"""The rule by which `scope-judge decide` accepts: from a set of a service, or from a file."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.cli.labelled_rows import print_label_report
from app.cli.service_client import ServiceClient, connected, read
from app.cli.set_transfer import MARK, set_path, set_rows
from app.core.calibration import Calibration, LabelledExample
from app.core.comparison import CalibrationReference, Criterion
from app.core.errors import InvalidRequestError, RequestError
from app.core.looks import Looks
from app.core.preference import rescaled
from app.core.score import Orders, Preference, Score
from app.core.threshold_rows import threshold_on
from app.core.thresholds import ThresholdCurve
from app.files.labelled import check_words, known_comparison
from app.files.reading import FileRow, InputFormat, read_rows
from app.files.results import result_columns
from app.files.shapes import ComparisonShape, known_shape, label_in
from app.service.judging.decisions import AcceptanceRule
from app.service.labelling.checking import LabelledRow, checked

# An export and a file have no number of a version.
_NO_VERSION = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOfJudge:
    """A rule, and the judge whose results it is for.

    Args:
        rule: The criterion with its threshold.
        judge: Name of the judge; None for any judge.
        calibration: The set whose threshold it is; None without a threshold or a set.
    """

    rule: AcceptanceRule
    judge: str | None
    calibration: Calibration | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenScore:
    """The score that a result shows, which has no gaps.

    Args:
        preference: Probabilities and uncertainty.
        label_mass: Probability of the two labels; the smaller of the two orders. None if the result
            does not say it.
        orders: Number of orders that the judge has seen.
        temperature: Number by which its gaps were divided.
        off_task: Whether the judge was off task.
    """

    preference: Preference
    label_mass: float | None
    orders: Orders
    temperature: float
    off_task: bool

    def preference_at(self, temperature: float) -> Preference:
        """Returns the preference with the gaps divided by another temperature."""
        if self.orders == 2 or temperature == self.temperature:
            return self.preference
        return rescaled(self.preference, self.temperature / temperature)


_NUMBERS = ("p_fwd", "p_rev", "p_bar", "uncertainty", "confidence")


def score_of(result: Mapping[str, Any]) -> WrittenScore | None:
    """The score of a result; None if a number is missing or is none."""
    numbers = {
        name: float(value)
        for name in (*_NUMBERS, "label_mass", "temperature")
        if isinstance(value := result.get(name), int | float) and not isinstance(value, bool)
    }
    missing = any(name not in numbers for name in _NUMBERS)
    temperature = numbers.get("temperature", 1.0)
    if missing or temperature <= 0.0 or not all(map(math.isfinite, numbers.values())):
        return None
    return WrittenScore(
        preference=Preference(
            p_fwd=numbers["p_fwd"],
            p_rev=numbers["p_rev"],
            p_bar=numbers["p_bar"],
            uncertainty=numbers["uncertainty"],
        ),
        label_mass=numbers.get("label_mass"),
        # Results of earlier releases do not say it, and have both.
        orders=1 if result.get("orders") == 1 else 2,
        temperature=temperature,
        off_task=result.get("reason") == "off_task",
    )


def rule_of_service(criterion: Criterion, url: str) -> RuleOfJudge:
    """The rule of a calibration set of a running service.

    Raises:
        CommandError: The service or the set cannot be used.
    """
    if criterion.alpha is None:
        # No threshold is needed, and so no service.
        return RuleOfJudge(rule=AcceptanceRule(criterion=criterion), judge=None)
    with connected(url) as service:
        floor = service.min_label_mass
        # Read first: a missing set is reported by its own route.
        service.get(set_path(criterion.calibration))
        described, *examples = set_rows(service, criterion.calibration)
        suspended = service.on_alarm == "abstain" and _is_suspended(service, criterion)
    of_set = _of_set(criterion, described, examples, floor)
    return replace(of_set, rule=replace(of_set.rule, suspended=suspended))


def _is_suspended(service: ServiceClient, criterion: Criterion) -> bool:
    """Whether judgments by the service abstain under a criterion because of audits."""
    from app.cli.set_answers import Monitor

    asked = (criterion.alpha, criterion.guarantee, criterion.delta)
    answer = service.get(set_path(criterion.calibration, "/monitor"))
    return any(
        row.suspended and (row.alpha, row.guarantee, row.delta) == asked
        for row in read(Monitor, answer).criteria
    )


def rule_of_file(
    criterion: Criterion, file: Path, label_noise: float, form: InputFormat
) -> RuleOfJudge:
    """The rule of an exported set, or of results with labels.

    Args:
        criterion: The criterion.
        file: Written by `scope-judge sets export`, or results of `scope-judge judge` with labels.
        label_noise: Probability that a label of the results is flipped; an export has its own.
        form: How the rows of results are written.

    Raises:
        InvalidRequestError: The file cannot be read, or has no labelled result.
    """
    rows = list(read_rows(file, form.encoding))
    if rows and MARK in rows[0].fields:
        return _of_set(criterion, rows[0].fields, [row.fields for row in islice(rows, 1, None)], 0)
    scored = list(_scored_rows(rows, form.shape))
    return _of_results(criterion, file, scored, label_noise)


def _of_set(
    criterion: Criterion,
    described: Mapping[str, Any],
    examples: Iterable[Mapping[str, Any]],
    floor: float,
) -> RuleOfJudge:
    if described.get("by_group"):
        raise InvalidRequestError(
            "the set has thresholds by group, and results do not say their group: judge the rows "
            "again"
        )
    try:
        calibration = replace(
            calibration_of(described, examples, floor=floor),
            looks=Looks.of(described["looks"]) if described.get("looks") else None,
        )
    except (KeyError, TypeError, ValueError):
        raise InvalidRequestError(
            "--labels: the exported set is damaged; export it again"
        ) from None
    if calibration.n != described.get("n", calibration.n):
        raise InvalidRequestError("--labels: the exported set was cut off; export it again")
    if criterion.alpha is None:
        rule = AcceptanceRule(criterion=criterion, min_label_mass=floor)
        return RuleOfJudge(rule=rule, judge=calibration.judge)
    threshold = calibration.threshold(criterion.alpha, criterion.guarantee, criterion.delta)
    rule = AcceptanceRule.of(criterion, calibration, threshold)
    return RuleOfJudge(rule=rule, judge=calibration.judge, calibration=calibration)


def calibration_of(
    described: Mapping[str, Any],
    examples: Iterable[Mapping[str, Any]],
    *,
    floor: float = 0.0,
    temperature: float | None = None,
) -> Calibration:
    """The calibration of examples that a service has listed.

    Args:
        described: The fields of the set, as in GET /calibrations/{name}/examples.
        examples: Its examples; ties of older releases have no score and are left out.
        floor: Label mass below which an example is off task.
        temperature: Temperature of the set, if these are not all of its examples.

    Raises:
        KeyError, TypeError: A field is missing or has another type.
    """
    return Calibration(
        name=described["name"],
        write_id="",
        version=described["version"],
        judge=described["judge"],
        fingerprint=described["fingerprint"],
        label_noise=described["label_noise"],
        examples={
            example["digest"]: LabelledExample(
                score=Score(
                    gap_fwd=example["gap_fwd"],
                    gap_rev=example["gap_rev"],
                    label_mass=example["label_mass"],
                ),
                label=example["label"],
                question=example.get("question"),
                group=example.get("group"),
            )
            for example in examples
            if example["gap_fwd"] is not None
        },
        min_label_mass=floor,
        clusters=described.get("clusters", "one"),
        by_group=bool(described.get("by_group")),
        given_temperature=temperature,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _ScoredRow(LabelledRow):
    """A row of results with its score and the name of its judge."""

    score: WrittenScore | None
    judge: str | None


def _scored_rows(rows: Sequence[FileRow], named: ComparisonShape | None) -> Iterator[_ScoredRow]:
    columns = result_columns(row.fields for row in rows)
    check_words(rows, named)
    shape = named or (known_shape(rows[0].fields) if rows else None)
    for row in rows:
        result = columns.result(row.fields) if columns is not None else {}
        score = score_of(result)
        label, problem = None, None if score is not None else "no scores of a judge"
        try:
            label = label_in(row.fields, named)
        except RequestError as exc:
            problem = exc.detail
        yield _ScoredRow(
            place=row.place,
            comparison=known_comparison(row, shape),
            label=label,
            problem=problem,
            score=score,
            judge=result.get("judge"),
        )


def _of_results(
    criterion: Criterion, file: Path, scored: Sequence[_ScoredRow], label_noise: float
) -> RuleOfJudge:
    """The rule of labelled results.

    The uncertainties are used as they were written. Those of a set are computed from its gaps, and
    may differ in the last digit: the pair at the threshold would then be lost.
    """
    judges = {row.judge for row in scored if row.problem is None and row.label is not None}
    found = checked(scored)
    print_label_report(found.report)
    used = [row for row in found.labelled if row.label != "tie"]
    uncertainty, error, n = [], [], len(used)
    temperatures = set[float]()
    for row in used:
        assert row.score is not None, "a row that counts has a score"
        temperatures.add(row.score.temperature)
        if not row.score.off_task:
            p_bar = row.score.preference.p_bar
            uncertainty.append(row.score.preference.uncertainty)
            error.append(p_bar <= 0.5 if row.label == "A" else p_bar >= 0.5)
    if not n:
        raise InvalidRequestError(
            f"{file} has no labelled result: --labels takes what `scope-judge judge` wrote, with a "
            "column of labels, or what `scope-judge sets export` wrote"
        )
    if len(judges) > 1:
        raise InvalidRequestError(f"{file} has results of several judges: give those of one")
    if len(temperatures) > 1:
        raise InvalidRequestError(
            f"{file} has results with different temperatures, so of different versions of a set: "
            "give those of one"
        )
    if criterion.alpha is None:
        return RuleOfJudge(rule=AcceptanceRule(criterion=criterion), judge=judges.pop())
    curve = ThresholdCurve.fit(uncertainty, error, label_noise)
    rule = AcceptanceRule(
        criterion=criterion,
        threshold=threshold_on(curve, criterion.alpha, criterion.guarantee, criterion.delta),
        curve=curve if criterion.guarantee == "marginal" else None,
        calibration=CalibrationReference(name=file.name, version=_NO_VERSION, n=n),
        temperature=temperatures.pop(),
    )
    return RuleOfJudge(rule=rule, judge=judges.pop())
