"""Every method by hand, against a plain loop over pairs, and with unparsed answers."""

import math
from typing import Any

import numpy as np
import pytest

from app.core.comparison import Side
from app.core.preference import LN2
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.methods import METHODS, MethodName, MethodScores, available
from app.ports import Generated

# p = e^g / (1 + e^g): a gap of ln 4 is 0.8, of ln 9 is 0.9, of -ln 3 is 0.25.
LN3, LN4, LN9 = math.log(3), math.log(4), math.log(9)


def entropy(p: float) -> float:
    """-[p ln p + (1 - p) ln (1 - p)], for p away from 0 and 1."""
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


def judged(label: Side = "A", *, number: int = 0, **said: Any) -> JudgedPair:
    return JudgedPair(dataset="set", id=str(number), group=None, label=label, **said)


def answer(text: str, *, complete: bool = True) -> Generated:
    return Generated(text, complete)


def samples(text: str) -> tuple[Generated, ...]:
    """One answer per letter; a letter other than A and B is an answer without a verdict."""
    return tuple(answer(f"[[{c}]]" if c in "AB" else "both are fine") for c in text)


def score(name: MethodName, *pairs: JudgedPair) -> MethodScores:
    return METHODS[name].score(pairs)


def test_bpe_by_hand() -> None:
    found = score(
        "bpe",
        judged("A", gaps=(LN4, LN9)),  # (0.8 + 0.9) / 2 = 0.85 for A
        judged("B", gaps=(LN9, -LN3)),  # (0.9 + 0.25) / 2 = 0.575 for A: wrong
        judged("B", gaps=(-LN4, LN4)),  # 0.5: no preference, an error with either label
        judged("B", gaps=(-50.0, -50.0)),  # exact, although 1 - p rounds to 1
    )
    np.testing.assert_array_equal(found.pairs, [0, 1, 2, 3])
    np.testing.assert_allclose(found.confidence, [0.85, 0.575, 0.5, 1.0], rtol=1e-12)
    # q = e^-50 to 22 digits: its entropy is q (1 - ln q) = 51 q, less q^2 / 2.
    by_hand = [entropy(0.85), entropy(0.575), LN2, 51 * math.exp(-50)]
    np.testing.assert_allclose(found.uncertainty, by_hand, rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, True, True, False])
    assert (found.unparsed, found.failed) == (0, 0)


@pytest.mark.parametrize("signal", ["gaps", "p"])
def test_a_reward_models_scores_are_one_gap_for_both_orders(signal: str) -> None:
    said: dict[str, list[dict[str, Any]]] = {
        "gaps": [{"gaps": (LN4, LN4), "orders": 1}, {"gaps": (0.0, 0.0), "orders": 1}],
        "p": [{"p": (0.8, 0.8), "orders": 1}, {"p": (0.5, 0.5), "orders": 1}],
    }
    first, second = said[signal]
    pairs = [judged("A", **first), judged("B", **second)]
    found = score("bpe", *pairs)
    # One right and one wrong verdict: Platt's target of the right one is 2/3, and of the wrong one
    # any temperature gives 1/2. So the temperature is 2, and sigmoid(ln 4 / 2) = 2/3.
    np.testing.assert_allclose(found.confidence, [2 / 3, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found.uncertainty, [entropy(2 / 3), LN2], rtol=1e-6)
    np.testing.assert_array_equal(found.error, [False, True])
    assert available(pairs) == ["bpe"]
    assert len(score("predictive_probability", *pairs).pairs) == 0
    assert len(score("swap_and_aggregate", *pairs).pairs) == 0


def test_predictive_probability_by_hand() -> None:
    found = score(
        "predictive_probability",
        judged("A", gaps=(LN4, -9.0)),  # 0.8 for A; the reverse order does not count
        judged("A", gaps=(-LN3, 9.0)),  # 0.25 for A: 0.75 for B, wrong
        judged("A", gaps=(0.0, 9.0)),
        judged("A", gaps=(50.0, 0.0)),
    )
    np.testing.assert_allclose(found.confidence, [0.8, 0.75, 0.5, 1.0])
    by_hand = [entropy(0.8), entropy(0.75), LN2, 51 * math.exp(-50)]
    np.testing.assert_allclose(found.uncertainty, by_hand, rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, True, True, False])
    shares = score("predictive_probability", judged("B", p=(0.3, 0.9)))
    np.testing.assert_allclose(shares.confidence, [0.7])
    np.testing.assert_allclose(shares.uncertainty, [entropy(0.7)])
    np.testing.assert_array_equal(shares.error, [False])


def test_verbalized_confidence_by_hand() -> None:
    texts = ("[[B]] 0.9", "[[A]] 0.9", "[[A]] 0.2", "[[A]] 1.0", "[[A]] 0.9", "[[A]] sure")
    gaps = ((LN4, -9.0), (-LN4, 9.0), (LN4, 9.0), (LN4, 9.0), (0.0, 9.0), (LN4, 9.0))
    found = score(
        "verbalized_confidence",
        *(judged("A", gaps=g, verbalized=answer(t)) for g, t in zip(gaps, texts, strict=True)),
    )
    # The side is that of the forward order (0.8 for A, then 0.2), not the one that the text names.
    np.testing.assert_array_equal(found.pairs, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(found.confidence, [0.9, 0.9, 0.2, 1.0, 0.9])
    # A confidence of 0.2 has uncertainty ln 2, and so has a forward order at 0.5.
    by_hand = [entropy(0.9), entropy(0.9), LN2, 0.0, LN2]
    np.testing.assert_allclose(found.uncertainty, by_hand, rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, True, False, False, True])
    assert (found.unparsed, found.failed) == (1, 0)


def test_swap_and_aggregate_by_hand() -> None:
    found = score(
        "swap_and_aggregate",
        judged("A", gaps=(0.1, 0.2)),  # both A: 1
        judged("A", gaps=(-5.0, -0.1)),  # both B: 1, wrong
        judged("A", gaps=(LN9, -LN4)),  # A and B: 0.5; p_bar (0.9 + 0.2) / 2 = 0.55, A
        judged("A", gaps=(LN4, -LN9)),  # A and B: 0.5; p_bar (0.8 + 0.1) / 2 = 0.45, wrong
        judged("A", gaps=(2.0, 0.0)),  # A and half a vote: 0.75
        judged("A", gaps=(-1.0, 1.0)),  # A and B, p_bar 0.5: no preference
        judged("A", gaps=(0.0, 0.0)),
    )
    np.testing.assert_array_equal(found.confidence, [1.0, 1.0, 0.5, 0.5, 0.75, 0.5, 0.5])
    by_hand = [0.0, 0.0, LN2, LN2, entropy(0.75), LN2, LN2]
    np.testing.assert_allclose(found.uncertainty, by_hand, rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, True, False, True, False, True, True])


def test_simulated_annotators_by_hand() -> None:
    found = score(
        "simulated_annotators",
        judged("A", annotators=(0.1, 2.0, 3.0, -4.0, -5.0)),  # 3 of 5
        judged("A", annotators=(-1.0, -1.0, -1.0, 9.0, -1.0)),  # 4 of 5 for B: wrong
        judged("B", annotators=(-1.0,) * 5),  # 5 of 5
        judged("A", annotators=(1.0, 1.0, -1.0, -1.0, 0.0)),  # 2 of 5 each: no preference
        judged("A", annotators=(1.0, 1.0, 0.0, 0.0, 0.0)),  # 2 of 5, and no vote for B
    )
    np.testing.assert_array_equal(found.pairs, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(found.confidence, [0.6, 0.8, 1.0, 0.4, 0.4])
    expected = [entropy(0.6), entropy(0.8), 0.0, math.log(2), math.log(2)]
    np.testing.assert_allclose(found.uncertainty, expected, rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, True, False, True, False])
    assert found.unparsed == 0


def test_self_consistency_by_hand() -> None:
    found = score(
        "self_consistency",
        judged("A", samples=samples("AABAB")),
        judged("A", samples=samples("BBBxB")),  # a vote of four is not comparable to a vote of five
        judged("B", samples=samples("BBBBB")),
        judged("A", samples=samples("AAxxB")),
        judged("A", samples=samples("xxxxx")),
    )
    np.testing.assert_array_equal(found.pairs, [0, 2])
    np.testing.assert_array_equal(found.confidence, [0.6, 1.0])
    np.testing.assert_allclose(found.uncertainty, [entropy(0.6), 0.0], rtol=1e-12)
    np.testing.assert_array_equal(found.error, [False, False])
    assert found.unparsed == 3


def test_failures_are_counted_and_pairs_never_asked_are_not() -> None:
    pairs = [
        judged("A", gaps=(1.0, 1.0), verbalized=answer("[[A]] 0.9")),
        judged("A", failed={"orders": "prompt_too_long", "verbalized": "prompt_too_long"}),
        judged("A", gaps=(1.0, 1.0), failed={"verbalized": "judgment_failed"}),
        judged("A", verbalized=answer("[[A]] 0.9"), failed={"orders": "judgment_failed"}),
        judged("A", gaps=(1.0, 1.0)),
        judged("A", failed={"orders": "judgment_failed"}),
        judged("A"),
    ]
    found = score("verbalized_confidence", *pairs)
    np.testing.assert_array_equal(found.pairs, [0])
    assert (found.failed, found.unparsed) == (3, 0)
    orders = score("bpe", *pairs)
    np.testing.assert_array_equal(orders.pairs, [0, 2, 4])
    assert (orders.failed, orders.unparsed) == (3, 0)
    personas = [judged("A", annotators=()), judged("A", failed={"annotators": "control_tokens"})]
    found = score("simulated_annotators", *personas)
    assert (len(found.pairs), found.failed, found.unparsed) == (0, 1, 0)
