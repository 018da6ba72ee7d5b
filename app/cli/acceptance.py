"""The rule by which `scope-judge decide` accepts: from a set of a service, or from a file."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from app.cli.score_upload import set_path
from app.cli.service_client import ServiceClient, connected
from app.cli.set_file import MARK, set_rows
from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import CalibrationReference, Criterion
from app.core.errors import InvalidRequestError, RequestError
from app.core.threshold_rows import threshold_on
from app.core.thresholds import ThresholdCurve
from app.files.reading import Row, read_rows
from app.files.results import result_columns
from app.files.shapes import label_in
from app.service.calibration.cache import Usable
from app.service.judging.decisions import AcceptanceRule, PreferenceRow

# An export and a file have no number of a version.
_NO_VERSION = 0


class Source(NamedTuple):
    """A rule, and the judge whose results it is for.

    Args:
        rule: The threshold of the criterion.
        judge: Name of the judge.
        min_label_mass: Label mass below which a judgment is off task.
    """

    rule: AcceptanceRule
    judge: str | None
    min_label_mass: float = 0.0


class Score(NamedTuple):
    """The scores of one judgment.

    Args:
        preference: Probabilities and uncertainty.
        label_mass: Probability of the two labels; the smaller of the two orders.
        off_task: Whether the judge was off task.
    """

    preference: PreferenceRow
    label_mass: float
    off_task: bool


def score_of(result: Mapping[str, Any]) -> Score | None:
    """The scores of a result; None if one is missing or is no number."""
    names = (*PreferenceRow._fields, "label_mass")
    values = [result.get(name) for name in names]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(names) or not all(map(math.isfinite, numbers)):
        return None
    *preference, mass = numbers
    return Score(PreferenceRow(*preference), mass, result.get("reason") == "off_task")


def rule_of_service(criterion: Criterion, url: str) -> Source:
    """The rule of a calibration set of a running service.

    Raises:
        typer.Exit: The service or the set cannot be used.
    """
    if criterion.alpha is None:
        # No threshold is needed, and so no service.
        return Source(AcceptanceRule.of(criterion, None, {}), None)
    with connected(url) as service:
        info = service.get("/info")
        floor = float(info.get("min_label_mass", 0.0))
        # Read first: a missing set is reported by its own route.
        service.get(set_path(criterion.calibration))
        described, *examples = set_rows(service, criterion.calibration)
        suspended = info.get("on_alarm") == "abstain" and _is_suspended(service, criterion)
    source = _source(criterion, described, examples, floor)
    return source._replace(rule=source.rule._replace(suspended=suspended))


def _is_suspended(service: ServiceClient, criterion: Criterion) -> bool:
    """Whether judgments by the service abstain under a criterion because of audits."""
    asked = (criterion.alpha, criterion.guarantee, criterion.delta)
    return any(
        each["suspended"] and (each["alpha"], each["guarantee"], each["delta"]) == asked
        for each in service.get(set_path(criterion.calibration, "/monitor"))["criteria"]
    )


def rule_of_file(criterion: Criterion, file: Path, label_noise: float) -> Source:
    """The rule of an exported set, or of results with labels.

    Args:
        criterion: The criterion.
        file: Written by `scope-judge sets export`, or results of `scope-judge judge` with labels.
        label_noise: Probability that a label of the results is flipped; an export has its own.

    Raises:
        InvalidRequestError: The file cannot be read, or has no labelled result.
    """
    rows = list(read_rows(file))
    if rows and MARK in rows[0].fields:
        return _source(criterion, rows[0].fields, [row.fields for row in islice(rows, 1, None)], 0)
    return _of_results(criterion, file, rows, label_noise)


def _source(
    criterion: Criterion,
    described: Mapping[str, Any],
    examples: Iterable[Mapping[str, Any]],
    floor: float,
) -> Source:
    try:
        calibration = Calibration(
            name=described["name"],
            write_id="",
            version=described["version"],
            judge=described["judge"],
            fingerprint=described["fingerprint"],
            label_noise=described["label_noise"],
            examples={
                each["digest"]: LabelledScore(
                    *(each["gap_fwd"], each["gap_rev"], each["label_mass"], each["label"]),
                    question=each.get("question"),
                )
                for each in examples
                if each["gap_fwd"] is not None
            },
            min_label_mass=floor,
            clusters=described.get("clusters", "one"),
        )
    except (KeyError, TypeError):
        raise InvalidRequestError(
            "--labels: the exported set is damaged; export it again"
        ) from None
    if calibration.n != described.get("n", calibration.n):
        raise InvalidRequestError("--labels: the exported set was cut off; export it again")
    pac = {}
    if criterion.alpha is not None and criterion.guarantee == "pac":
        pac[criterion] = calibration.threshold(criterion.alpha, "pac", criterion.delta)
    rule = AcceptanceRule.of(criterion, Usable(calibration, 0.0), pac)
    return Source(rule, calibration.judge, floor)


def _of_results(
    criterion: Criterion, file: Path, rows: Sequence[Row], label_noise: float
) -> Source:
    """The rule of labelled results.

    The uncertainties are used as they were written. Those of a set are computed from its gaps, and
    may differ in the last digit: the pair at the threshold would then be lost.
    """
    columns = result_columns(row.fields for row in rows)
    uncertainty, error, judges, n = [], [], set(), 0
    for row in rows:
        result = columns.result(row.fields) if columns is not None else {}
        score = score_of(result)
        try:
            label = label_in(row.fields)
        except RequestError as exc:
            raise InvalidRequestError(f"{row.place}: {exc.detail}") from None
        if score is None or label not in ("A", "B"):
            continue
        n += 1
        judges.add(result.get("judge"))
        if not score.off_task:
            p_bar = score.preference.p_bar
            uncertainty.append(score.preference.uncertainty)
            error.append(p_bar <= 0.5 if label == "A" else p_bar >= 0.5)
    if not n:
        raise InvalidRequestError(
            f"{file} has no labelled result: --labels takes what `scope-judge judge` wrote, with a "
            "column of labels, or what `scope-judge sets export` wrote"
        )
    if len(judges) > 1:
        raise InvalidRequestError(f"{file} has results of several judges: give those of one")
    if criterion.alpha is None:
        return Source(AcceptanceRule.of(criterion, None, {}), judges.pop())
    curve = ThresholdCurve.fit(uncertainty, error, label_noise)
    rule = AcceptanceRule(
        threshold_on(curve, criterion.alpha, criterion.guarantee, criterion.delta),
        curve if criterion.guarantee == "marginal" else None,
        CalibrationReference(file.name, _NO_VERSION, n),
    )
    return Source(rule, judges.pop())
