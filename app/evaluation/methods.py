"""The paper's ways to tell how sure a judge is: what it said of labelled pairs -> confidences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.comparison import Label
from app.core.preference import LN2, FloatArray, Preferences, binary_entropy, preference_from_gaps
from app.evaluation.judgments.jsonl import JudgedPair, Observation
from app.evaluation.judgments.prompts import parse_confidence, parse_verdict

MethodName = Literal[
    "predictive_probability",
    "verbalized_confidence",
    "swap_and_aggregate",
    "simulated_annotators",
    "self_consistency",
    "bpe",
]
Signal = Literal["gaps", "p", "scores", "verdicts"]

# What has two orders; a reward model's scores have none.
_ORDERED: tuple[Signal, ...] = ("gaps", "p")
_SIDES: Mapping[Label | None, float] = {"A": 1.0, "tie": 0.0, "B": -1.0, None: np.nan}
# Vote shares are decimals of few digits, so that 0.1 + 0.7 and 0.2 + 0.6 are one level; in floating
# point they are two. 12 digits keep every level one and are far finer than any judge's.
_SIGNIFICANT_DIGITS = 12


class MethodScores(NamedTuple):
    """How sure a judge is of each pair by one method, and where it is wrong.

    Args:
        pairs: Shape (m,). Places of the pairs that the method has an opinion on.
        confidence: Shape (m,), in [0, 1]: for ECE, AUROC and AUPRC.
        uncertainty: Shape (m,), in nats within [0, ln 2]: for the selectors; ln 2 where the judge
            has no preference.
        error: Shape (m,). True where the preferred side is not the label, or there is none.
        unparsed: Pairs that were answered with something that is no opinion.
        failed: Pairs that the judge failed on.
        unparsed_answers: Single answers that did not parse; several of one pair may.
    """

    pairs: NDArray[np.int64]
    confidence: FloatArray
    uncertainty: FloatArray
    error: NDArray[np.bool_]
    unparsed: int
    failed: int
    unparsed_answers: int


@dataclass(frozen=True, slots=True)
class Method:
    """A way to tell how sure a judge is.

    Args:
        title: As in the paper.
        needs: What a pair must have been asked.
        score: Judged pairs -> scores of those that were asked it.
    """

    title: str
    needs: tuple[Observation, ...]
    score: Callable[[Sequence[JudgedPair]], MethodScores]


class _Asked(NamedTuple):
    """The pairs that have what a method needs, their places, and how many the judge failed on."""

    pairs: list[JudgedPair]
    places: NDArray[np.int64]
    failed: int

    @classmethod
    def of(
        cls,
        pairs: Sequence[JudgedPair],
        needs: tuple[Observation, ...],
        signals: tuple[Signal, ...] = _ORDERED,
    ) -> "_Asked":
        """Pairs that lack a need which has not failed either were never asked, and are left out."""
        places, failed = [], 0
        for place, pair in enumerate(pairs):
            lacking = [need for need in needs if not _has(pair, need, signals)]
            if not lacking:
                places.append(place)
            elif all(need in (pair.failed or {}) for need in lacking):
                failed += 1
        return cls([pairs[i] for i in places], np.array(places, np.int64), failed)

    def scores(
        self,
        side: ArrayLike,
        confidence: ArrayLike,
        uncertainty: ArrayLike,
        *,
        unparsed_answers: int = 0,
    ) -> MethodScores:
        """Counts sides against labels.

        Args:
            side: Shape (m,). Above 0 for response_a, below for response_b, 0 for none; NaN for
                a pair whose answers are no opinion.
            confidence: Shape (m,).
            uncertainty: Shape (m,), in nats.
            unparsed_answers: Single answers that did not parse.
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
            unparsed_answers=unparsed_answers,
        )


def _has(pair: JudgedPair, need: Observation, signals: tuple[Signal, ...]) -> bool:
    if need == "orders":
        return any(getattr(pair, signal) is not None for signal in signals)
    # No persona and no sample is no answer.
    return bool(getattr(pair, need))


def preferences_of(pairs: Sequence[JudgedPair]) -> Preferences:
    """The preferences that gaps, probabilities or a reward model's scores come to.

    Args:
        pairs: n of one judge; all have the same of the three.

    Returns:
        The preferences, each of shape (n,).

    Raises:
        ValueError: Pairs have different signals, or one has none.
    """
    return _preferences(*_signals(pairs))


def _forward_preferences(pairs: Sequence[JudgedPair]) -> Preferences:
    """Of the forward order alone: the reverse one is taken to say the same."""
    kind, values = _signals(pairs)
    return _preferences(kind, values[:, [0, 0]])


def _signals(pairs: Sequence[JudgedPair]) -> tuple[Signal, FloatArray]:
    """Which signal the pairs have, and its values, shape (n, 2)."""
    kinds = {_signal_of(pair) for pair in pairs} or {"gaps"}
    kind = kinds.pop()
    if kinds or kind is None:
        raise ValueError("all pairs need the same signal: gaps, p or scores")
    values = [getattr(pair, kind) for pair in pairs]
    return kind, np.array(values, np.float64).reshape(-1, 2)


def _preferences(kind: Signal, values: FloatArray) -> Preferences:
    if kind == "p":
        return _of_probabilities(values)
    if kind == "scores":
        # A reward model sees each response by itself: both orders have the same gap.
        gap = values[:, 0] - values[:, 1]
        return preference_from_gaps(gap, gap)
    return preference_from_gaps(values[:, 0], values[:, 1])


def _signal_of(pair: JudgedPair) -> Signal | None:
    signals: tuple[Signal, ...] = ("gaps", "p", "scores")
    return next((signal for signal in signals if getattr(pair, signal) is not None), None)


def _of_probabilities(p: FloatArray) -> Preferences:
    """The mean of both orders, its smaller side kept to 12 digits and the larger 1 less it."""
    p_bar, q_bar = p.mean(axis=1), (1.0 - p).mean(axis=1)
    rounded = [float(f"{x:.{_SIGNIFICANT_DIGITS}g}") for x in np.minimum(p_bar, q_bar)]
    smaller = np.minimum(rounded, 0.5)
    entropy = binary_entropy(smaller, 1.0 - smaller)
    p_bar = np.where(p_bar < q_bar, smaller, 1.0 - smaller)
    return Preferences(p[:, 0], p[:, 1], p_bar, entropy)


def _bpe(pairs: Sequence[JudgedPair]) -> MethodScores:
    """SCOPE, section on BPE, and "BPE as confidence" in its appendix."""
    asked = _Asked.of(pairs, ("orders",), ("gaps", "p", "scores"))
    found = preferences_of(asked.pairs)
    return asked.scores(found.p_bar - 0.5, found.confidence, found.entropy)


def _predictive_probability(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The larger of both probabilities, response_a shown first."""
    asked = _Asked.of(pairs, ("orders",))
    found = _forward_preferences(asked.pairs)
    return asked.scores(found.p_bar - 0.5, found.confidence, found.entropy)


def _verbalized_confidence(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The confidence that the judge declares, with the verdict of Predictive Probability.

    Deviation: the paper has no uncertainty of a confidence below 0.5, of which no entropy can be
    taken without ranking 0.1 as highly as 0.9. Here it is ln 2: accepted only where everything is.
    """
    asked = _Asked.of(pairs, ("orders", "verbalized"))
    found = _forward_preferences(asked.pairs)
    parsed = [parse_confidence(pair.verbalized) for pair in asked.pairs if pair.verbalized]
    confidence = np.array([np.nan if c is None else c for c in parsed], np.float64)
    unparsed = np.isnan(confidence)
    declared = np.maximum(np.where(unparsed, 0.5, confidence), 0.5)
    return asked.scores(
        np.where(unparsed, np.nan, found.p_bar - 0.5),
        confidence,
        _of_probabilities(np.column_stack([declared, declared])).entropy,
        unparsed_answers=int(unparsed.sum()),
    )


def _swap_and_aggregate(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of both orders' verdicts that agree, with BPE's verdict where they do not."""
    asked = _Asked.of(pairs, ("orders",), (*_ORDERED, "verdicts"))
    votes = np.array([_votes(pair) for pair in asked.pairs], np.float64).reshape(-1, 2)
    lead = votes.sum(axis=1)
    larger, smaller = (2.0 + np.abs(lead)) / 4.0, (2.0 - np.abs(lead)) / 4.0
    divided = np.flatnonzero(lead == 0.0)
    side = lead.copy()
    side[divided] = [_averaged_side(asked.pairs[i]) for i in divided]
    unparsed_answers = int(np.isnan(votes).sum())
    entropy = binary_entropy(larger, smaller)
    return asked.scores(side, larger, entropy, unparsed_answers=unparsed_answers)


def _votes(pair: JudgedPair) -> tuple[float, float]:
    """Both orders' votes: 1 for response_a, -1 for response_b, 0 for a tie, NaN unparsed."""
    if pair.verdicts is not None:
        first, second = pair.verdicts
        return _SIDES[first], _SIDES[second]
    if pair.gaps is not None:
        return float(np.sign(pair.gaps[0])), float(np.sign(pair.gaps[1]))
    assert pair.p is not None
    return float(np.sign(pair.p[0] - 0.5)), float(np.sign(pair.p[1] - 0.5))


def _averaged_side(pair: JudgedPair) -> float:
    """BPE's side; 0 where a file has nothing but verdicts."""
    if _signal_of(pair) is None:
        return 0.0
    return float(preferences_of([pair]).p_bar[0] - 0.5)


def _simulated_annotators(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of the personas that the majority has."""
    asked = _Asked.of(pairs, ("annotators",))
    votes = [np.sign(np.array(pair.annotators)) for pair in asked.pairs]
    return _majority(asked, votes)


def _self_consistency(pairs: Sequence[JudgedPair]) -> MethodScores:
    """The share of the sampled answers that the majority has."""
    asked = _Asked.of(pairs, ("samples",))
    votes = [
        np.array([_SIDES[parse_verdict(sample)] for sample in pair.samples or ()])
        for pair in asked.pairs
    ]
    return _majority(asked, votes)


def _majority(asked: _Asked, votes: Sequence[FloatArray]) -> MethodScores:
    """The side that most answers name, and the share of all answers that name it.

    A pair with an answer that does not parse is left out: a vote of four is no vote of five.

    Args:
        asked: The m pairs.
        votes: For each pair its answers: 1, -1, 0 for neither, NaN unparsed.
    """
    answers = np.array([len(pair) for pair in votes], np.float64)
    unparsed = np.array([int(np.isnan(pair).sum()) for pair in votes], np.int64)
    for_a = np.array([(pair > 0.0).sum() for pair in votes], np.float64)
    for_b = np.array([(pair < 0.0).sum() for pair in votes], np.float64)
    larger = np.maximum(for_a, for_b)
    share = larger / answers
    side = np.where(unparsed > 0, np.nan, for_a - for_b)
    # Below one half where several answers name neither.
    surer = np.maximum(larger, answers / 2.0)
    entropy = binary_entropy(surer / answers, (answers - surer) / answers)
    return asked.scores(side, share, entropy, unparsed_answers=int(unparsed.sum()))


METHODS: Mapping[MethodName, Method] = MappingProxyType(
    {
        "predictive_probability": Method(
            "Predictive Probability", ("orders",), _predictive_probability
        ),
        "verbalized_confidence": Method(
            "Verbalized Confidence", ("orders", "verbalized"), _verbalized_confidence
        ),
        "swap_and_aggregate": Method("Swap-and-Aggregate", ("orders",), _swap_and_aggregate),
        "simulated_annotators": Method(
            "Simulated Annotators", ("annotators",), _simulated_annotators
        ),
        "self_consistency": Method("Self-Consistency", ("samples",), _self_consistency),
        "bpe": Method("BPE", ("orders",), _bpe),
    }
)


def available(pairs: Sequence[JudgedPair]) -> list[MethodName]:
    """The methods that at least one pair was asked for, be it that the judge failed on it."""
    found: list[MethodName] = []
    for name, method in METHODS.items():
        scores = method.score(pairs)
        if len(scores.pairs) + scores.unparsed + scores.failed:
            found.append(name)
    return found
