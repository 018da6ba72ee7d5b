"""The paper's six uncertainty methods: judged pairs in, confidences and uncertainties out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from app.core.comparison import Label
from app.core.preference import LN2, FloatArray, Preferences, binary_entropy, preference_from_gaps
from app.core.temperature import fitted_temperature
from app.evaluation.judgments.answers import parse_confidence, parse_verdict
from app.evaluation.judgments.record import JudgedPair, Observation
from app.judges.scorer import JudgeKind

MethodName = Literal[
    "predictive_probability",
    "verbalized_confidence",
    "swap_and_aggregate",
    "simulated_annotators",
    "self_consistency",
    "bpe",
]
Signal = Literal["gaps", "p"]

# A vote as a number: positive for response_a.
_SIDES: Mapping[Label | None, float] = {"A": 1.0, "tie": 0.0, "B": -1.0, None: np.nan}
# Vote shares are decimals with few digits: 0.1 + 0.7 and 0.2 + 0.6 are the same level, but not the
# same float. Rounding to 12 digits makes them equal and keeps the levels of any judge apart.
_SIGNIFICANT_DIGITS = 12
# Gap of the largest probability below 1 that is a float.
_LARGEST_GAP = 53 * LN2


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodScores:
    """Confidence, uncertainty and error of each pair by one method.

    Args:
        pairs: Shape (m,). Indices of the scored pairs.
        confidence: Shape (m,), in [0, 1]. Input of ECE, AUROC and AUPRC.
        uncertainty: Shape (m,), in nats within [0, ln 2]; ln 2 where the judge has no preference.
            Input of the selectors.
        error: Shape (m,). True where the preferred side is not the label, or no side is preferred.
        unparsed, failed: Numbers of pairs left out because an answer did not parse, or the judge
            failed.
    """

    pairs: NDArray[np.int64]
    confidence: FloatArray
    uncertainty: FloatArray
    error: NDArray[np.bool_]
    unparsed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Method:
    """An uncertainty method.

    Args:
        title: Name in the paper.
        needs: Observations that the method needs of a pair.
        score: Scores those of the judged pairs that have all needed observations.
    """

    title: str
    needs: tuple[Observation, ...]
    score: Callable[[Sequence[JudgedPair]], MethodScores]


def bpe(pairs: Sequence[JudgedPair]) -> MethodScores:
    """Entropy of the preference averaged over both orders.

    SCOPE, section on BPE, and "BPE as confidence" in its appendix. The gaps of a judge without
    orders are on no known scale, so they are divided by the temperature that a calibration set of
    the same labels has.
    """
    answered = _AnsweredPairs.of(pairs, ("orders",), _has_signal)
    if all(pair.has_both_orders for pair in answered.pairs):
        preferences = preferences_of(answered.pairs)
    else:
        preferences = _preferences_of_one_order(answered.pairs)
    return answered.scores(preferences.p_bar - 0.5, preferences.confidence, preferences.entropy)


def predictive_probability(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The larger of the two label probabilities, with response_a shown first."""
    answered = _AnsweredPairs.of(pairs, ("orders",))
    preferences = _forward_preferences(answered.pairs)
    return answered.scores(preferences.p_bar - 0.5, preferences.confidence, preferences.entropy)


def verbalized_confidence(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The confidence that the judge declares, with the verdict of Predictive Probability.

    Deviation: the paper defines no uncertainty for a confidence below 0.5. Its entropy would rank
    0.1 as highly as 0.9. Here it is ln 2, so that the pair is accepted only if everything is.
    """
    answered = _AnsweredPairs.of(pairs, ("orders", "verbalized"))
    preferences = _forward_preferences(answered.pairs)
    parsed = [parse_confidence(pair.verbalized) for pair in answered.pairs if pair.verbalized]
    confidence = np.array([np.nan if c is None else c for c in parsed], np.float64)
    declared = np.maximum(np.nan_to_num(confidence, nan=0.5), 0.5)
    return answered.scores(
        np.where(np.isnan(confidence), np.nan, preferences.p_bar - 0.5),
        confidence,
        _preferences_from_probabilities(np.column_stack([declared, declared])).entropy,
    )


def swap_and_aggregate(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of the two orders' verdicts that agree; BPE's verdict where they disagree."""
    answered = _AnsweredPairs.of(pairs, ("orders",))
    kind, values = _signals(answered.pairs)
    lead = np.sign(values - (0.5 if kind == "p" else 0.0)).sum(axis=1)
    larger, smaller = (2.0 + np.abs(lead)) / 4.0, (2.0 - np.abs(lead)) / 4.0
    divided = np.flatnonzero(lead == 0.0)
    side = lead.copy()
    side[divided] = preferences_of([answered.pairs[i] for i in divided]).p_bar - 0.5
    return answered.scores(side, larger, binary_entropy(larger, smaller))


def simulated_annotators(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of the personas that vote for the majority's side."""
    answered = _AnsweredPairs.of(pairs, ("annotators",))
    votes = [np.sign(np.array(pair.annotators)) for pair in answered.pairs]
    return _majority(answered, votes)


def self_consistency(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of the sampled answers that name the majority's side."""
    answered = _AnsweredPairs.of(pairs, ("samples",))
    votes = [
        np.array([_SIDES[parse_verdict(sample)] for sample in pair.samples or ()])
        for pair in answered.pairs
    ]
    return _majority(answered, votes)


def _majority(answered: "_AnsweredPairs", votes: Sequence[FloatArray]) -> MethodScores:
    """The side that most answers name, and the share of all answers that name it.

    A pair with an unparsed answer is left out: a vote of four is not comparable to a vote of five.

    Args:
        votes: Votes of each pair: 1 for response_a, -1 for response_b, 0 for a tie, NaN unparsed.
    """
    count = np.array([len(pair) for pair in votes], np.float64)
    unparsed = np.array([np.isnan(pair).any() for pair in votes], np.bool_)
    for_a = np.array([(pair > 0.0).sum() for pair in votes], np.float64)
    for_b = np.array([(pair < 0.0).sum() for pair in votes], np.float64)
    majority = np.maximum(for_a, for_b)
    side = np.where(unparsed, np.nan, for_a - for_b)
    # Several ties can put the majority below one half, where entropy would fall again.
    at_least_half = np.maximum(majority, count / 2.0)
    entropy = binary_entropy(at_least_half / count, (count - at_least_half) / count)
    return answered.scores(side, majority / count, entropy)


METHODS: Mapping[MethodName, Method] = MappingProxyType(
    {
        "predictive_probability": Method(
            "Predictive Probability", ("orders",), predictive_probability
        ),
        "verbalized_confidence": Method(
            "Verbalized Confidence", ("orders", "verbalized"), verbalized_confidence
        ),
        "swap_and_aggregate": Method("Swap-and-Aggregate", ("orders",), swap_and_aggregate),
        "simulated_annotators": Method(
            "Simulated Annotators", ("annotators",), simulated_annotators
        ),
        "self_consistency": Method("Self-Consistency", ("samples",), self_consistency),
        "bpe": Method("BPE", ("orders",), bpe),
    }
)


# Only a chat model with labels is asked in words; a reward model sees no order of the responses.
METHODS_OF_KIND: Mapping[JudgeKind, tuple[MethodName, ...]] = MappingProxyType(
    {
        "chat model": tuple(METHODS),
        "chat model by votes": ("predictive_probability", "swap_and_aggregate", "bpe"),
        "chat model that thinks": ("predictive_probability", "swap_and_aggregate", "bpe"),
        "decision server": ("predictive_probability", "swap_and_aggregate", "bpe"),
        "reward model": ("bpe",),
    }
)


def available(pairs: Sequence[JudgedPair]) -> list[MethodName]:
    """The methods for which at least one pair was asked, also where the judge failed."""
    names: list[MethodName] = []
    for name, method in METHODS.items():
        scores = method.score(pairs)
        if len(scores.pairs) + scores.unparsed + scores.failed:
            names.append(name)
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class _AnsweredPairs:
    """The pairs that have all observations that a method needs.

    Args:
        places: Shape (m,). Indices of the m pairs among all pairs.
        failed: Number of pairs that the judge failed on.
    """

    pairs: list[JudgedPair]
    places: NDArray[np.int64]
    failed: int

    @classmethod
    def of(
        cls,
        pairs: Sequence[JudgedPair],
        needs: tuple[Observation, ...],
        is_scored: Callable[[JudgedPair], bool] = lambda pair: pair.has_both_orders,
    ) -> "_AnsweredPairs":
        """Selects the pairs with all needs, and counts those whose lacking needs all failed.

        A pair that lacks a need without a failure was never asked; it is left out uncounted. So are
        all pairs of a judge whose scores are of another kind than `is_scored` asks for.
        """
        scored = [pair for pair in pairs if _has_signal(pair)]
        if "orders" in needs and scored and not any(map(is_scored, scored)):
            pairs = ()
        places, failed = [], 0
        for place, pair in enumerate(pairs):
            lacking = [need for need in needs if not _has(pair, need, is_scored)]
            if not lacking:
                places.append(place)
            elif all(need in (pair.failed or {}) for need in lacking):
                failed += 1
        return cls(
            pairs=[pairs[i] for i in places], places=np.array(places, np.int64), failed=failed
        )

    def scores(
        self,
        side: ArrayLike,
        confidence: ArrayLike,
        uncertainty: ArrayLike,
    ) -> MethodScores:
        """Compares the preferred sides with the labels.

        Args:
            side: Shape (m,). Positive for response_a, negative for response_b, 0 for no preference,
                NaN for a pair with an unparsed answer.
            confidence, uncertainty: As of `MethodScores`.
        """
        sides = np.sign(np.asarray(side, np.float64))
        labels = np.array([_SIDES[pair.label] for pair in self.pairs])
        kept = ~np.isnan(sides)
        entropy = np.where(sides == 0.0, LN2, np.asarray(uncertainty, np.float64))
        return MethodScores(
            pairs=self.places[kept],
            confidence=np.asarray(confidence, np.float64)[kept],
            uncertainty=entropy[kept],
            error=(sides != labels)[kept],
            unparsed=int((~kept).sum()),
            failed=self.failed,
        )


def _has_signal(pair: JudgedPair) -> bool:
    return _signal_of(pair) is not None


def _has(pair: JudgedPair, need: Observation, is_scored: Callable[[JudgedPair], bool]) -> bool:
    if need == "orders":
        return is_scored(pair)
    # An empty list of votes is not an answer.
    return bool(getattr(pair, need))


def preferences_of(pairs: Sequence[JudgedPair]) -> Preferences:
    """The preferences from the logit gaps or probabilities of n pairs of one judge.

    Raises:
        ValueError: Two pairs have different signals, or a pair has none.
    """
    return _preferences(*_signals(pairs))


def _preferences_of_one_order(pairs: Sequence[JudgedPair]) -> Preferences:
    kind, values = _signals(pairs)
    gap = values[:, 0]
    if kind == "p":
        # A file has 1.0 for all larger gaps.
        gap = np.clip(logit(gap), -_LARGEST_GAP, _LARGEST_GAP)
    gap = gap / fitted_temperature(gap, np.array([pair.label == "A" for pair in pairs]))
    return preference_from_gaps(gap, gap)


def _forward_preferences(pairs: Sequence[JudgedPair]) -> Preferences:
    """The preferences of the forward order alone; the reverse order is set equal to it."""
    kind, values = _signals(pairs)
    return _preferences(kind, values[:, [0, 0]])


def _signals(pairs: Sequence[JudgedPair]) -> tuple[Signal, FloatArray]:
    """The common signal of the pairs, and its values, shape (n, 2)."""
    kinds = {_signal_of(pair) for pair in pairs} or {"gaps"}
    kind = kinds.pop()
    if kinds or kind is None:
        raise ValueError("all pairs need the same signal: gaps or p")
    values = [getattr(pair, kind) for pair in pairs]
    return kind, np.array(values, np.float64).reshape(-1, 2)


def _preferences(kind: Signal, values: FloatArray) -> Preferences:
    if kind == "p":
        return _preferences_from_probabilities(values)
    return preference_from_gaps(values[:, 0], values[:, 1])


def _signal_of(pair: JudgedPair) -> Signal | None:
    return "gaps" if pair.gaps is not None else "p" if pair.p is not None else None


def _preferences_from_probabilities(p: FloatArray) -> Preferences:
    """Averages both orders; rounds the smaller side to 12 digits, so that equal levels are equal.

    Args:
        p: Shape (n, 2). Probability of response_a, shown first and second.
    """
    p_bar, q_bar = p.mean(axis=1), (1.0 - p).mean(axis=1)
    rounded = [float(f"{x:.{_SIGNIFICANT_DIGITS}g}") for x in np.minimum(p_bar, q_bar)]
    smaller = np.minimum(rounded, 0.5)
    entropy = binary_entropy(smaller, 1.0 - smaller)
    p_bar = np.where(p_bar < q_bar, smaller, 1.0 - smaller)
    return Preferences(p[:, 0], p[:, 1], p_bar, entropy)
