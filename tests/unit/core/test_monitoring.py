"""The monitor of accepted verdicts: comparison with naive loops, and edges."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.betting import first_at, restart_log_weights
from app.core.monitoring import MonitorFigures, error_interval, monitor
from app.core.pac import observed_error

ALARM_BETS = (1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0)
CERTIFICATE_BETS = (0.5, 0.7, 0.8, 0.9)


def factor(wrong: bool, rate: float, bound: float) -> float:
    """1 + lambda (E - bound), as docs/design/guarantees.md, section 6, writes it."""
    bet = (rate - bound) / (bound * (1 - bound))
    return 1 + bet * (wrong - bound)


def naive_evidence(errors: list[bool], bound: float) -> list[float]:
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


def naive_certificate(errors: list[bool], bound: float) -> list[float]:
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


@settings(max_examples=150)
@given(
    st.lists(st.booleans(), max_size=80),
    st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.8, 0.99]),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([0.05, 0.3, 0.9]),
)
def test_the_monitor_is_the_naive_loop(
    errors: list[bool], alpha: float, noise: float, delta: float
) -> None:
    found = monitor(errors, alpha=alpha, label_noise=noise, delta=delta)
    bound = observed_error(alpha, noise)
    evidence, certificate = naive_evidence(errors, bound), naive_certificate(errors, bound)
    assert (found.audited, found.errors) == (len(errors), sum(errors))
    assert found.evidence == pytest.approx(evidence[-1] if errors else 0.0, rel=1e-9)
    assert found.certificate == pytest.approx(certificate[-1] if errors else 1.0, rel=1e-9)
    assert found.alarm_at == naive_first(evidence, 1 / delta)
    assert found.alarm == (found.alarm_at is not None)
    certified_at = None if found.alarm else naive_first(certificate, 1 / delta)
    assert found.certified_at == certified_at
    assert found.certified == (certified_at is not None)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_mean_wealth_is_at_most_one_at_the_bound(alpha: float, noise: float) -> None:
    # All 2^10 sequences of labels, weighted by their probabilities.
    bound, n = observed_error(alpha, noise), 10
    evidence = certificate = 0.0
    for errors in itertools.product([False, True], repeat=n):
        likelihood = math.prod(bound if wrong else 1 - bound for wrong in errors)
        found = monitor(errors, alpha=alpha, label_noise=noise)
        evidence += likelihood * found.evidence
        certificate += likelihood * found.certificate
    # Each factor has a mean of 1 at the bound, so the mean is the wealth that began.
    assert evidence == pytest.approx(np.exp(restart_log_weights(1, n)).sum(), rel=1e-9)
    assert certificate == pytest.approx(1.0, rel=1e-9)


def test_the_weights_sum_to_at_most_one() -> None:
    count = 10**6
    summed = float(np.exp(restart_log_weights(1, count)).sum())
    # The function falls, so the rest is at most its integral from `count` on.
    rest = math.log(10.5) / math.log(count + 10)
    assert 0.999 < summed + rest <= 1.0


def test_weights_go_on_where_a_block_ended() -> None:
    whole = restart_log_weights(1, 90)
    parts = [restart_log_weights(1, 40), restart_log_weights(41, 50)]
    assert np.array_equal(whole, np.concatenate(parts))


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


def test_no_labels_say_nothing() -> None:
    assert monitor([], alpha=0.1) == MonitorFigures(
        audited=0,
        errors=0,
        closed=0,
        error_interval=(0.0, 1.0),
        evidence=0.0,
        alarm=False,
        alarm_at=None,
        certificate=1.0,
        certified=False,
        certified_at=None,
    )
    assert first_at(np.array([]), 20.0) is None


def test_the_interval_holds_the_rates_with_wealth_below_its_level() -> None:
    for errors, labelled, delta in ((0, 1, 0.05), (3, 40, 0.05), (40, 40, 0.1), (70, 1000, 0.01)):
        low, high = error_interval(errors, labelled, delta=delta)
        for rate in (low, high):
            if rate in (0.0, 1.0):
                continue
            assert wealth_against(rate, errors, labelled) == pytest.approx(1 / delta, rel=1e-6)
        assert wealth_against((low + high) / 2, errors, labelled) < 1 / delta
    low, high = error_interval(0, 1, delta=0.05)
    assert low == 0.0
    assert high == pytest.approx(0.975)


def wealth_against(rate: float, errors: int, labelled: int) -> float:
    """Product of the predicted probabilities of Jeffreys' mixture, over those under the rate."""
    wealth, seen = 1.0, 0.5
    for k in range(labelled):
        # The order of the labels does not matter; the errors come first here.
        wrong = k < errors
        predicted = seen / (k + 1) if wrong else 1 - seen / (k + 1)
        wealth *= predicted / (rate if wrong else 1 - rate)
        seen += wrong
    return wealth


def test_label_noise_moves_the_interval_to_the_true_error() -> None:
    observed = np.array(error_interval(300, 1000))
    true = np.array(error_interval(300, 1000, label_noise=0.2))
    assert true == pytest.approx((observed - 0.2) / 0.6)
    # Fewer errors than the noise alone: the true error is 0.
    assert error_interval(10, 1000, label_noise=0.2) == (0.0, 0.0)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=80),
    st.sampled_from([0.01, 0.1, 0.5]),
    st.sampled_from([0.0, 0.2]),
)
def test_nothing_looks_better_or_worse_than_it_is_by_closing(
    draws: list[tuple[bool, bool]], alpha: float, noise: float
) -> None:
    errors, closed = [error for error, _ in draws], [is_closed for _, is_closed in draws]
    true = monitor(errors, alpha=alpha, label_noise=noise)
    found = monitor(errors, closed=closed, alpha=alpha, label_noise=noise)
    assert found.evidence <= true.evidence * (1 + 1e-9)
    assert found.certificate <= true.certificate * (1 + 1e-9)
    low, high = found.error_interval
    assert low <= true.error_interval[0] + 1e-9
    assert high >= true.error_interval[1] - 1e-9
    # The label that a closed draw would have had changes nothing.
    flipped = [error != is_closed for error, is_closed in draws]
    assert monitor(flipped, closed=closed, alpha=alpha, label_noise=noise) == found
    assert (found.audited, found.closed) == (closed.count(False), closed.count(True))
    assert found.errors == sum(error and not is_closed for error, is_closed in draws)


def test_a_closed_tie_widens_the_interval_that_leaves_it_out() -> None:
    for labelled in range(25):
        for errors in range(labelled + 1):
            low, high = error_interval(errors, labelled)
            assert error_interval(errors, labelled + 1)[0] <= low + 1e-9
            assert error_interval(errors + 1, labelled + 1)[1] >= high - 1e-9


def test_wrong_arguments_are_refused() -> None:
    for alpha, delta in ((0.0, 0.05), (1.0, 0.05), (0.1, 0.0), (0.1, 1.0), (math.nan, 0.1)):
        with pytest.raises(ValueError, match="alpha and delta"):
            monitor([True], alpha=alpha, delta=delta)
    with pytest.raises(ValueError, match="label_noise"):
        monitor([True], alpha=0.1, label_noise=0.5)
    with pytest.raises(ValueError, match="shape"):
        monitor([[True]], alpha=0.1)
    with pytest.raises(ValueError, match="shape"):
        monitor([True], closed=[True, False], alpha=0.1)
