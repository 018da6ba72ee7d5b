"""The recommendation in words for judges of every kind, and the feasible alphas by brute force."""

import math
import re

import numpy as np
import pytest

from app.core.assessment import (
    Assessment,
    note_on_looking,
    recommendation,
    share_interval,
)
from app.core.assessment import alphas_in_words as words
from app.core.calibration import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.comparison import Guarantee
from app.core.diagnostics import feasible_alphas, more_examples
from app.core.pac import pac_threshold
from app.core.preference import LN2
from app.core.thresholds import ThresholdCurve
from app.evaluation.curve import LabeledScores, assessment_of
from tests.statistics.worlds.normal import NormalJudge


def assessed(
    uncertainty: np.ndarray,
    error: np.ndarray,
    *,
    alphas: tuple[float, ...] = STANDARD_ALPHAS,
) -> Assessment:
    scores = LabeledScores(uncertainty=uncertainty, error=error)
    return assessment_of(scores, alphas, delta=STANDARD_DELTA)


def drawn(accuracy: float, auroc: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    return NormalJudge(accuracy=accuracy, auroc=auroc).draw(n, np.random.default_rng(3))


def right_and_wrong(right: int, wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """All equally certain: the confidence says nothing."""
    return np.full(right + wrong, 0.3), np.arange(right + wrong) >= right


RECOMMENDED = {
    "a good judge": (
        drawn(0.894, 0.822, 1000),
        r"If alpha 0\.05 was your choice before you saw this table, .*: it answers 74% .*",
    ),
    "a coin": (
        right_and_wrong(104, 96),
        r".* 52% \(45% to 59%\) .* no better than a coin\. More .*",
    ),
    "too few labels to tell it from a coin": (
        right_and_wrong(14, 6),
        r".* 70% \(48% to 85%\) of 20 pairs: these are too few .* Label at least 100 pairs\.",
    ),
    # Start rank of pac at 0.10 and 0.10 is 91: 71 more than 20.
    "all right, too few labels": (
        right_and_wrong(20, 0),
        r"Label at least 71 more pairs: with fewer, alpha 0\.10 with pac cannot be feasible\.",
    ),
    "all right": (right_and_wrong(300, 0), r"If alpha 0\.05 was .*: it answers 100% of pairs .*"),
    "all wrong": (
        right_and_wrong(0, 60),
        r".* 0% \(0% to 6%\) .* more often than a coin\. Check .*",
    ),
    "better than a coin, and no use": (
        right_and_wrong(620, 380),
        r".* 62% \(59% to 65%\) .* it is wrong too often where it is most certain: more labels .*",
    ),
    "a coin that knows when it is right": (
        (np.linspace(0.0, 0.6, 400), np.arange(400) >= 200),
        r".* no better than a coin\. Only its most certain .* alpha 0\.\d\d was .* 5\d% .*",
    ),
}


@pytest.mark.parametrize("kind", RECOMMENDED)
def test_each_kind_of_judge_gets_its_recommendation(kind: str) -> None:
    points, sentence = RECOMMENDED[kind]
    found = recommendation(assessed(*points))
    assert re.fullmatch(sentence, found), found


def test_an_alpha_that_is_chosen_from_the_table_shows_its_price() -> None:
    found = assessed(*drawn(0.894, 0.822, 1000))
    assert "was your choice before you saw this table" in recommendation(found)
    note = note_on_looking(found)
    assert note is not None
    assert "the promise does not cover it" in note
    assert "divide delta by 5" in note


def test_a_single_alpha_has_no_price() -> None:
    found = assessed(*drawn(0.894, 0.822, 1000), alphas=(0.1,))
    assert recommendation(found).endswith("except with probability 0.10.")
    assert note_on_looking(found) is None


def test_labels_that_are_asked_for_show_their_price() -> None:
    note = note_on_looking(assessed(*right_and_wrong(20, 0)))
    assert note is not None
    assert "Calibrate a new set on the new labels alone" in note


def test_the_interval_of_an_accuracy_is_wilsons() -> None:
    # Wilson's interval solves (p - x)^2 = z^2 x (1 - x) / n.
    for right, n in ((0, 10), (7, 20), (104, 200), (20, 20)):
        for bound in share_interval(right / n, n):
            gap = (right / n - bound) ** 2 - 1.959963984540054**2 * bound * (1 - bound) / n
            assert gap == pytest.approx(0.0, abs=1e-12)
            assert 0.0 <= bound <= 1.0


def test_a_set_of_alphas_is_said_in_words() -> None:
    some = [(0.08, 0.171), (0.173, 0.173), (0.175, 0.999)]
    assert words(some) == "0.08-0.171, 0.173, from 0.175"
    assert words([]) == "none"


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("guarantee", ["marginal", "pac"])
def test_the_feasible_alphas_are_those_of_brute_force(guarantee: Guarantee, noise: float) -> None:
    gaps = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        # Rounded, so that there are ties.
        score = np.round(rng.random(150) * LN2, 2)
        error = rng.random(150) < 0.15 + 0.3 * score
        curve = ThresholdCurve.fit(score, error, noise)
        found = feasible_alphas(curve, guarantee, 0.1)
        expected = []
        for alpha in (np.arange(1, 1000) / 1000).tolist():
            if guarantee == "marginal":
                threshold = curve.threshold(alpha)
            else:
                threshold = pac_threshold(score, error, alpha=alpha, delta=0.1, label_noise=noise)
            if threshold > -math.inf:
                expected.append(alpha)
        covered = [
            alpha
            for alpha in (np.arange(1, 1000) / 1000).tolist()
            if any(low <= alpha <= high for low, high in found)
        ]
        assert covered == expected
        assert covered
        gaps += len(found) - 1
    # Under "pac" a larger alpha can be infeasible again; under "marginal" never.
    assert (gaps > 0) == (guarantee == "pac")


@pytest.mark.parametrize(("guarantee", "least"), [("marginal", 10), ("pac", 91)])
def test_each_label_lowers_the_number_that_an_alpha_needs_at_least(
    guarantee: Guarantee, least: int
) -> None:
    errors = np.arange(200) % 7 == 3
    curves = [ThresholdCurve.fit(np.arange(n) / 400, errors[:n]) for n in range(200)]
    found = [more_examples(curve, 0.1, guarantee, 0.1) for curve in curves]
    assert found == [*range(least, 0, -1), *[None] * (200 - least)]


def test_no_number_of_examples_that_a_set_has_room_for_reaches_an_alpha_near_zero() -> None:
    curve = ThresholdCurve.fit(np.arange(60) / 100, np.zeros(60, dtype=bool))
    for alpha in (5e-324, 1e-300, 1 / 60_000):
        assert more_examples(curve, alpha, "marginal", None) is None
        for delta in (0.1, 0.999999):
            assert more_examples(curve, alpha, "pac", delta) is None
