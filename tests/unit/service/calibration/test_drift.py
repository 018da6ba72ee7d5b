"""The comparison of judgments with the calibration set, with numbers worked out by hand."""

import logging
import math
from collections.abc import Sequence

import pytest

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import CalibrationReference, Criterion, Judgment, Reason
from app.core.errors import JudgmentFailedError, ScopeJudgeError
from app.service.calibration.drift import Drift

CERTAIN, UNCERTAIN = 0.1, 0.6
THRESHOLD = 0.5


def calibration_of(
    *, abstentions: int = 12, n: int = 100, name: str = "default", write_id: str = "w"
) -> Calibration:
    """Returns a set in which `abstentions` examples are less certain than the threshold."""
    gaps = [0.2] * abstentions + [4.0] * (n - abstentions)
    examples = {str(i): LabelledScore(gap, gap, 1.0, "A") for i, gap in enumerate(gaps)}
    return Calibration(name, write_id, 1, "judge", "fingerprint", 0.0, examples)


def judgment(
    reference: CalibrationReference | None,
    *,
    abstains: bool = False,
    threshold: float | None = THRESHOLD,
    uncertainty: float | None = None,
) -> Judgment:
    reason: Reason | None = ("uncertain" if threshold else "infeasible") if abstains else None
    found = UNCERTAIN if abstains else CERTAIN
    return Judgment(
        verdict="abstain" if abstains else "A",
        preferred="A",
        reason=reason,
        p_fwd=0.9,
        p_rev=0.9,
        p_bar=0.9,
        uncertainty=found if uncertainty is None else uncertainty,
        confidence=0.9,
        threshold=threshold,
        criterion=Criterion(None if reference is None else 0.1, "marginal", None, "default"),
        risk_level=None,
        label_mass=1.0,
        calibration=reference,
        judge="judge",
    )


def note(drift: Drift, calibration: Calibration, judgments: Sequence[Judgment]) -> None:
    drift.note(judgments, [(calibration, 0.0)] * len(judgments))


def judge(
    drift: Drift, calibration: Calibration, *, abstain: int, of: int, batch: int = 50
) -> None:
    """Adds judgments with uncertainties of the set, and evenly spread abstentions."""
    low, high = calibration.uncertainty[-1], calibration.uncertainty[0]
    reference = CalibrationReference(calibration.name, calibration.version, calibration.n)
    found = [
        judgment(reference, abstains=abstains, uncertainty=float(high if abstains else low))
        for i in range(of)
        for abstains in (i * abstain // of < (i + 1) * abstain // of,)
    ]
    for start in range(0, of, batch):
        note(drift, calibration, found[start : start + batch])


@pytest.mark.parametrize("batch", [1, 7, 50, 64, 1000])
def test_the_share_of_abstentions_is_compared_with_that_of_the_labelled_pairs(batch: int) -> None:
    drift, calibration = Drift(), calibration_of(abstentions=12)
    judge(drift, calibration, abstain=120, of=1000, batch=batch)
    found = drift.figures(calibration)
    assert found is not None
    assert found.expected_abstentions == pytest.approx(0.12)
    assert found.abstentions == pytest.approx(0.12, abs=0.002)
    mean = float(calibration.uncertainty.mean())
    assert found.expected_uncertainty == mean
    assert found.uncertainty == pytest.approx(mean, abs=0.002)
    assert not found.has_drifted


def test_there_are_no_figures_before_200_judgments_or_with_fewer_than_50_examples() -> None:
    drift, calibration, small = Drift(), calibration_of(), calibration_of(n=49, name="small")
    judge(drift, calibration, abstain=199, of=199)
    judge(drift, small, abstain=500, of=500)
    assert drift.figures(calibration) is None
    assert drift.figures(small) is None
    judge(drift, calibration, abstain=1, of=1)
    found = drift.figures(calibration)
    assert found is not None
    assert (found.judgments, found.abstentions, found.has_drifted) == (200, 1.0, True)


def test_only_the_last_thousand_judgments_count() -> None:
    drift, calibration = Drift(), calibration_of()
    judge(drift, calibration, abstain=5000, of=5000)
    judge(drift, calibration, abstain=120, of=1000)
    found = drift.figures(calibration)
    assert found is not None
    assert (found.judgments, found.has_drifted) == (1000, False)


def test_drift_begins_and_ends_with_one_line_of_the_log_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drift, calibration = Drift(), calibration_of()
    judge(drift, calibration, abstain=120, of=1000)
    assert caplog.text == ""
    judge(drift, calibration, abstain=380, of=1000)
    judge(drift, calibration, abstain=380, of=1000)
    (begun,) = caplog.records
    assert begun.levelno == logging.WARNING
    assert "calibration 'default' (version 1) is unlike its labelled pairs" in begun.getMessage()
    assert "abstentions (labelled pairs: 12.0%)" in begun.getMessage()
    judge(drift, calibration, abstain=120, of=1000)
    assert len(caplog.records) == 2
    assert "is like its labelled pairs" in caplog.records[1].getMessage()


def test_fewer_abstentions_than_expected_are_drift_too() -> None:
    drift, calibration = Drift(), calibration_of(abstentions=40)
    judge(drift, calibration, abstain=0, of=1000)
    found = drift.figures(calibration)
    assert found is not None
    assert found.has_drifted


def test_uncertainty_alone_is_drift_even_where_abstentions_are_as_expected() -> None:
    drift, calibration = Drift(), calibration_of(abstentions=0)
    reference = CalibrationReference("default", 1, 100)
    note(drift, calibration, [judgment(reference, uncertainty=0.4)] * 200)
    found = drift.figures(calibration)
    assert found is not None
    assert found.abstentions == found.expected_abstentions == 0.0
    assert found.has_drifted


def test_abstentions_at_an_infeasible_alpha_do_not_count() -> None:
    drift, calibration = Drift(), calibration_of()
    reference = CalibrationReference("default", 1, 100)
    mean = float(calibration.uncertainty.mean())
    refused = judgment(reference, abstains=True, threshold=None, uncertainty=mean)
    note(drift, calibration, [refused] * 1000)
    found = drift.figures(calibration)
    assert found is not None
    assert (found.judgments, found.abstentions, found.expected_abstentions) == (1000, None, None)
    assert not found.has_drifted


def test_each_threshold_is_compared_with_its_own_share_of_the_pairs() -> None:
    drift, calibration = Drift(), calibration_of(abstentions=12)
    reference, other = (CalibrationReference("default", 1, 100) for _ in range(2))
    strict = judgment(reference, abstains=True, threshold=0.01, uncertainty=0.3)
    everything = judgment(other, threshold=math.log(2), uncertainty=0.3)
    # A batch can mix criteria in any order.
    note(drift, calibration, [strict, everything, everything, strict] * 100)
    found = drift.figures(calibration)
    assert found is not None
    assert found.judgments == 400
    assert found.abstentions == found.expected_abstentions == 0.5


def test_errors_and_judgments_without_an_alpha_do_not_count() -> None:
    drift, calibration = Drift(), calibration_of()
    reference = CalibrationReference("default", 1, 100)
    outcomes: list[Judgment | ScopeJudgeError] = [
        judgment(None),
        JudgmentFailedError("no"),
        judgment(reference),
        judgment(None),
    ]
    used = [None, (calibration, 0.0), (calibration, 0.0), None]
    for _ in range(199):
        drift.note(outcomes, used)
    assert drift.figures(calibration) is None
    drift.note(outcomes, used)
    found = drift.figures(calibration)
    assert found is not None
    assert found.judgments == 200


def test_a_new_version_starts_from_zero() -> None:
    drift, calibration = Drift(), calibration_of()
    judge(drift, calibration, abstain=500, of=500)
    newer = calibration_of(write_id="x")
    assert drift.figures(newer) is None
    judge(drift, newer, abstain=24, of=200)
    found = drift.figures(newer)
    assert found is not None
    assert not found.has_drifted
    assert drift.figures(calibration) is None


def test_the_most_recently_used_set_comes_first_and_the_oldest_are_dropped() -> None:
    drift = Drift()
    sets = [calibration_of(name=f"set-{i}", n=1, abstentions=0) for i in range(1001)]
    for each in (*sets, sets[5]):
        judge(drift, each, abstain=0, of=1)
    names = drift.names()
    assert names[:2] == ["set-5", "set-1000"]
    assert len(names) == 1000
    assert "set-0" not in names
