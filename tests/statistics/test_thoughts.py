"""The promise of "pac" for judges that think: thoughts without an end, and asking again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from app.core.calibration import Calibration, LabeledExample
from app.core.pac import pac_threshold
from app.core.preference import NoScore
from tests.labeled_examples import calibration_of, labeled_example

Array = NDArray[Any]
ALPHA = DELTA = 0.1
RUNS, N, TRAFFIC = 300, 1000, 200_000
# Gap of a pair towards the better response, and whether its verdict is wrong -> probability that
# its thought ends.
Finishing = Callable[[Array, Array], Array]

FINISHING: dict[str, Finishing] = {
    "always": lambda gap, wrong: np.ones(len(gap)),
    "half": lambda gap, wrong: np.full(len(gap), 0.5),
    # Doubt takes long, and so do errors; or the reverse.
    "sure": lambda gap, wrong: expit(3 * np.abs(gap) - 3),
    "unsure": lambda gap, wrong: expit(2 - np.abs(gap)),
    "right": lambda gap, wrong: np.where(wrong, 0.5, 0.9),
    "wrong": lambda gap, wrong: np.where(wrong, 0.9, 0.6),
    "sure errors": lambda gap, wrong: np.where(wrong & (np.abs(gap) > 1), 1.0, 0.4),
}


def drawn(rng: np.random.Generator, n: int, thoughts: int = 1) -> tuple[Array, Array, Array]:
    """Shape (n, thoughts): gaps towards the better response, uncertainties, and errors.

    A pair has a difficulty, and each of its thoughts moves the gap.
    """
    gap = rng.normal(1.1, 1.0, n)[:, None] + rng.normal(0.0, 1.0, (n, thoughts))
    p = expit(gap)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    return gap, entropy, gap < 0


def shares_over(accepted: Array, wrong: Array) -> bool:
    return bool(accepted.any()) and float(wrong[accepted].mean()) > ALPHA


@pytest.mark.parametrize("name", FINISHING)
def test_pac_keeps_its_promise_whatever_decides_which_thoughts_end(name: str) -> None:
    rng = np.random.default_rng(45)
    ends = FINISHING[name]

    def finished(n: int) -> tuple[Array, Array]:
        gap, entropy, wrong = (each[:, 0] for each in drawn(rng, n))
        kept = rng.random(n) < ends(gap, wrong)
        return entropy[kept], wrong[kept]

    traffic, errors = finished(TRAFFIC)
    over, coverage = 0, []
    for _ in range(RUNS):
        threshold = pac_threshold(*finished(N), alpha=ALPHA, delta=DELTA)
        over += shares_over(traffic <= threshold, errors)
        coverage.append((traffic <= threshold).sum() / TRAFFIC)
    # Three standard errors above delta.
    assert over / RUNS <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / RUNS)
    print(f"{name}: over {over / RUNS:.3f}, coverage of all pairs {np.mean(coverage):.3f}")


def test_asking_again_until_a_verdict_is_accepted_breaks_the_promise() -> None:
    rng = np.random.default_rng(45)
    attempts = 5
    _, entropy, errors = drawn(rng, TRAFFIC // 4, attempts)
    over = {1: 0, attempts: 0}
    for _ in range(RUNS):
        _, scores, wrong = (each[:, 0] for each in drawn(rng, N))
        threshold = pac_threshold(scores, wrong, alpha=ALPHA, delta=DELTA)
        for asked in over:
            accepted: Array = entropy[:, :asked] <= threshold
            first = accepted.argmax(axis=1)
            verdict = np.take_along_axis(errors, first[:, None], axis=1)[:, 0]
            over[asked] += shares_over(np.any(accepted, axis=1), verdict)
    assert over[1] / RUNS <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / RUNS)
    # So the seeds of a thought follow from its comparison: another answer cannot be had by asking.
    assert over[attempts] / RUNS > 0.3
    print(f"asked once: over {over[1] / RUNS:.3f}, 5 times: {over[attempts] / RUNS:.3f}")


def test_a_set_with_thoughts_that_did_not_end_has_the_thresholds_of_the_rest() -> None:
    rng = np.random.default_rng(3)

    def example(number: int) -> LabeledExample:
        gap = rng.normal(1.1, 1.5)
        if number % 3 == 0:
            return LabeledExample(score=NoScore(reason="thought_unfinished"), label="A")
        return labeled_example(gap, gap, label_mass=0.99, label="A")

    whole = calibration_of({f"{i:04d}": example(i) for i in range(600)})
    rest = calibration_of(
        {d: each for d, each in whole.examples.items() if not isinstance(each.score, NoScore)}
    )

    def thresholds(calibration: Calibration) -> list[float | None]:
        return [row.threshold for row in calibration.standard_rows]

    assert thresholds(whole) == thresholds(rest)
    for row, alone in zip(whole.standard_rows, rest.standard_rows, strict=True):
        assert row.coverage == pytest.approx(alone.coverage * rest.n / whole.n)
