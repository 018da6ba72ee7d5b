"""Methods are compared on the pairs that all of them scored, with intervals over questions."""

import numpy as np
import pytest

from app.evaluation.compared import compared
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.methods import METHODS, MethodName, MethodScores
from app.evaluation.metrics import quality

N = 400


def judged(*, pairs_of_a_question: int = 1) -> list[JudgedPair]:
    """Pairs of which the judge errs on a fifth, all pairs of a question alike."""
    rng = np.random.default_rng(5)
    wrong = np.repeat(rng.random(N // pairs_of_a_question) < 0.2, pairs_of_a_question)
    gaps = rng.normal(1.5, 1.0, N)
    return [
        JudgedPair(
            dataset="d",
            id=str(i),
            group=str(i // pairs_of_a_question),
            label="B" if bad else "A",
            gaps=(abs(float(gap)), abs(float(gap))),
        )
        for i, (gap, bad) in enumerate(zip(gaps, wrong, strict=True))
    ]


def scores_of(pairs: list[JudgedPair], *names: MethodName) -> dict[MethodName, MethodScores]:
    return {name: METHODS[name].score(pairs) for name in names}


def without(scores: MethodScores, places: int) -> MethodScores:
    """The scores without the first pairs, as of a method that does not parse them."""
    return MethodScores(
        pairs=scores.pairs[places:],
        confidence=scores.confidence[places:],
        uncertainty=scores.uncertainty[places:],
        error=scores.error[places:],
        unparsed=places,
        failed=0,
        unparsed_answers=places,
    )


def test_methods_are_compared_on_the_pairs_that_all_of_them_scored() -> None:
    pairs = judged()
    scores = scores_of(pairs, "bpe", "predictive_probability", "swap_and_aggregate")
    scores["swap_and_aggregate"] = without(scores["swap_and_aggregate"], 30)
    scores["predictive_probability"] = without(scores["predictive_probability"], 100)
    found = compared(pairs, scores, seed=0)
    # Three quarters are too few to be compared.
    assert set(found) == {"bpe", "swap_and_aggregate"}
    assert {method.n for method in found.values()} == {N - 30}
    bpe = scores["bpe"]
    assert found["bpe"].quality == quality(bpe.confidence[30:], bpe.error[30:])


def test_an_interval_has_the_figure_inside_and_is_wider_with_pairs_of_one_question() -> None:
    widths = []
    for pairs_of_a_question in (1, 10):
        pairs = judged(pairs_of_a_question=pairs_of_a_question)
        one = compared(pairs, scores_of(pairs, "bpe"), seed=0)["bpe"]
        for value, interval in zip(one.quality, one.intervals, strict=True):
            assert value is not None
            assert interval is not None
        assert one.quality.accuracy is not None
        assert one.intervals[0] is not None
        low, high = one.intervals[0]
        assert low < one.quality.accuracy < high
        widths.append(high - low)
        # Two standard errors of a share on either side, of as many questions as there are.
        questions = N / pairs_of_a_question
        assert high - low == pytest.approx(3.92 * np.sqrt(0.16 / questions), rel=0.35)
    assert widths[1] > 2 * widths[0]


def test_an_equal_seed_gives_equal_intervals_and_no_pairs_give_nothing() -> None:
    pairs = judged()
    scores = scores_of(pairs, "bpe")
    assert compared(pairs, scores, seed=3) == compared(pairs, scores, seed=3)
    assert compared(pairs, scores, seed=3) != compared(pairs, scores, seed=4)
    assert compared([], scores_of([], "bpe"), seed=3) == {}


def test_a_figure_that_is_not_defined_in_every_round_has_no_interval() -> None:
    pairs = judged()[:3]
    one = compared(pairs, scores_of(pairs, "bpe"), seed=0)["bpe"]
    assert one.intervals[2] is None
