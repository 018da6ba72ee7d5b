"""The monitor of accepted verdicts: comparison with naive loops, and edges."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.betting import restart_log_weights
from app.core.monitoring import (
    AGAIN_S,
    LEFT_OUT,
    MONITOR_DELTA,
    QUESTION_S,
    MonitorFigures,
    alarm_delta,
    bets_of,
    error_interval,
    monitor,
)

ALARM_BETS = (1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0)
CERTIFICATE_BETS = (0.5, 0.7, 0.8, 0.9)


def factor(wrong: float, rate: float, bound: float) -> float:
    """1 + lambda (E - bound), as docs/design/guarantees.md, section 6, writes it."""
    bet = (rate - bound) / (bound * (1 - bound))
    return 1 + bet * (wrong - bound)


def naive_evidence(errors: Sequence[float], bound: float) -> list[float]:
    """M_t = (M_{t-1} + w_t) (1 + lambda_q (E_t - alpha)), label by label, mean over q."""
    rates = [ratio * bound for ratio in ALARM_BETS if ratio * bound < 0.95]
    rates = rates or [(1 + bound) / 2]
    wealth = [0.0] * len(rates)
    found = []
    for k, wrong in enumerate(errors, start=1):
        weight = math.log(10.5) / ((k + 10) * math.log(k + 10) ** 2)
        wealth = [
            (each + weight) * factor(wrong, rate, bound)
            for each, rate in zip(wealth, rates, strict=True)
        ]
        found.append(sum(wealth) / len(rates))
    return found


def naive_certificate(errors: Sequence[float], bound: float) -> list[float]:
    wealth = [1.0] * len(CERTIFICATE_BETS)
    found = []
    for wrong in errors:
        wealth = [
            each * factor(wrong, ratio * bound, bound)
            for each, ratio in zip(wealth, CERTIFICATE_BETS, strict=True)
        ]
        found.append(sum(wealth) / len(CERTIFICATE_BETS))
    return found


def naive_first(wealth: list[float], level: float) -> int | None:
    return next((t for t, each in enumerate(wealth, start=1) if each >= level), None)


# The labels of each question: no question is without a draw.
asked = st.lists(st.lists(st.booleans(), min_size=1, max_size=4), max_size=50)


@settings(max_examples=150)
@given(
    asked,
    st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.8, 0.99]),
    st.sampled_from([0.05, 0.3, 0.9]),
)
def test_the_monitor_is_the_naive_loop_over_the_mean_errors_of_questions(
    questions: list[list[bool]], alpha: float, delta: float
) -> None:
    labels = [wrong for question in questions for wrong in question]
    numbers = [7 * i for i, question in enumerate(questions) for _ in question]
    found = monitor(labels, questions=numbers, alpha=alpha, false_alarms=delta)
    errors = [sum(question) / len(question) for question in questions]
    evidence, certificate = naive_evidence(errors, alpha), naive_certificate(errors, alpha)
    counts = (found.audited, found.errors, found.questions)
    assert counts == (len(labels), sum(labels), len(questions))
    interval = error_interval(sum(errors), len(errors))
    assert found.error_interval == pytest.approx(interval)
    assert found.alarm_evidence == 1 / delta
    assert found.evidence == pytest.approx(evidence[-1] if errors else 0.0, rel=1e-9)
    assert found.certificate == pytest.approx(certificate[-1] if errors else 1.0, rel=1e-9)
    assert found.alarm_at == naive_first(evidence, 1 / delta)
    assert found.alarm == (found.alarm_at is not None)
    certified_at = None if found.alarm else naive_first(certificate, 1 / MONITOR_DELTA)
    assert found.certified_at == certified_at
    assert found.certified == (certified_at is not None)


def test_the_weights_sum_to_at_most_one() -> None:
    count = 10**6
    summed = float(np.exp(restart_log_weights(1, count)).sum())
    # The function falls, so the rest is at most its integral from `count` on.
    rest = math.log(10.5) / math.log(count + 10)
    assert 0.999 < summed + rest <= 1.0


def test_an_alarm_stays_and_takes_the_certificate_back() -> None:
    # 400 right verdicts give the certificate, then a third is wrong, then all are right again.
    errors = [False] * 400 + [True, False, False] * 60 + [False] * 3000
    before = monitor(errors[:400], alpha=0.1)
    assert before.certified
    assert not before.alarm
    after = monitor(errors, alpha=0.1)
    assert after.alarm
    assert after.alarm_at is not None
    assert 400 < after.alarm_at <= 580
    assert after.evidence < 20 < after.certificate
    assert not after.certified
    assert after.certified_at is None


def test_a_million_labels_neither_overflow_nor_underflow() -> None:
    rng = np.random.default_rng(5)
    for rate, alarm, certified in ((0.05, False, True), (0.3, True, False)):
        found = monitor(rng.random(10**6) < rate, alpha=0.1)
        assert (found.alarm, found.certified) == (alarm, certified)
        assert math.isfinite(found.evidence)
        assert math.isfinite(found.certificate)
        assert found.error_interval[0] < rate < found.error_interval[1]
    assert found.evidence == pytest.approx(1e300)
    assert found.certificate == 0.0


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, math.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("wrong", [False, True])
def test_extreme_alphas_give_numbers(alpha: float, wrong: bool) -> None:
    found = monitor([wrong] * 5, alpha=alpha)
    assert math.isfinite(found.evidence)
    assert math.isfinite(found.certificate)


def test_the_interval_holds_the_rates_with_wealth_below_its_level() -> None:
    for errors, labelled, delta in ((0, 1, 0.05), (3, 40, 0.05), (40, 40, 0.1), (70, 1000, 0.01)):
        low, high = error_interval(errors, labelled, delta=delta)
        for rate in (low, high):
            if rate in (0.0, 1.0):
                continue
            naive = naive_wealth_against(rate, errors, labelled)
            assert naive == pytest.approx(1 / delta, rel=1e-6)
        assert naive_wealth_against((low + high) / 2, errors, labelled) < 1 / delta
    low, high = error_interval(0, 1, delta=0.05)
    assert low == 0.0
    assert high == pytest.approx(0.975)


def naive_wealth_against(rate: float, errors: int, labelled: int) -> float:
    """Product of the predicted probabilities of Jeffreys' mixture, over those under the rate."""
    wealth, seen = 1.0, 0.5
    for k in range(labelled):
        # The order of the labels does not matter; the errors come first here.
        wrong = k < errors
        predicted = seen / (k + 1) if wrong else 1 - seen / (k + 1)
        wealth *= predicted / (rate if wrong else 1 - rate)
        seen += wrong
    return wealth


# Number of the question, whether the verdict is wrong, and whether it was closed or has expired.
draws_of_questions = st.lists(
    st.tuples(st.integers(0, 30), st.booleans(), st.booleans()),
    max_size=80,
)


@settings(deadline=None, max_examples=150)
@given(draws_of_questions, st.sampled_from([0.01, 0.1, 0.5]))
def test_nothing_looks_better_or_worse_than_it_is_by_closing_and_expiring(
    draws: list[tuple[int, bool, bool]], alpha: float
) -> None:
    draws = sorted(draws, key=lambda draw: draw[0])
    questions, errors = [each for each, _, _ in draws], [error for _, error, _ in draws]
    unlabeled = [without for _, _, without in draws]

    def found_of(errors: list[bool]) -> MonitorFigures:
        return monitor(
            errors,
            questions=questions,
            unlabeled=unlabeled,
            alpha=alpha,
        )

    true = monitor(errors, questions=questions, alpha=alpha)
    found = found_of(errors)
    assert found.evidence <= true.evidence * (1 + 1e-9)
    assert found.certificate <= true.certificate * (1 + 1e-9)
    low, high = found.error_interval
    assert low <= true.error_interval[0] + 1e-9
    assert high >= true.error_interval[1] - 1e-9
    # The label that such a draw would have had changes nothing.
    assert found_of([error != without for _, error, without in draws]) == found
    labels = [error for _, error, without in draws if not without]
    assert (found.audited, found.errors) == (len(labels), sum(labels))


def test_a_question_counts_once_a_day_by_the_draws_of_its_first_hour() -> None:
    def at(question: int, hours: float) -> tuple[int, float]:
        return question, hours * QUESTION_S

    day = AGAIN_S / QUESTION_S
    draws = [
        *(at(0, 0.0), at(1, 0.1), at(0, 0.5), at(0, 0.99), at(1, 1.05), at(2, 1.2)),
        # Too late for the first bet, and too early for the next.
        *(at(0, 1.0), at(0, day - 0.01)),
        *(at(3, day), at(0, day), at(0, day + 0.9), at(0, day + 1.1), at(1, day + 0.2)),
    ]
    digests = np.array([[question] * 32 for question, _ in draws], dtype=np.uint8)
    # Digests of zeros are unknown questions.
    found = bets_of(digests + np.uint8(1), np.array([time for _, time in draws]))
    assert found.tolist() == [0, 1, 0, 0, 1, 2, LEFT_OUT, LEFT_OUT, 3, 4, 4, LEFT_OUT, 5]
    assert bets_of(np.empty((0, 32), dtype=np.uint8), np.empty(0)).tolist() == []


def test_a_clock_that_is_set_back_splits_no_question() -> None:
    digests = np.full((3, 32), 9, dtype=np.uint8)
    assert bets_of(digests, np.array([500.0, 400.0, -AGAIN_S])).tolist() == [0, 0, 0]


def test_the_criteria_of_a_version_share_five_percent_however_many_come() -> None:
    assert [MONITOR_DELTA / alarm_delta(place) for place in (1, 2, 3)] == pytest.approx([2, 6, 12])
    assert sum(alarm_delta(place) for place in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


def test_wrong_arguments_are_refused() -> None:
    for alpha, delta in ((0.0, 0.05), (1.0, 0.05), (0.1, 0.0), (0.1, 1.0), (math.nan, 0.1)):
        with pytest.raises(ValueError, match="alpha and false_alarms"):
            monitor([True], alpha=alpha, false_alarms=delta)
    with pytest.raises(ValueError, match="shape"):
        monitor([[True]], alpha=0.1)
    with pytest.raises(ValueError, match="shape"):
        monitor([True], unlabeled=[True, False], alpha=0.1)
