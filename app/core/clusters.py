"""Pairs of one question, and how "pac" counts them.

The errors of a judge on several pairs of one question resemble each other, so these pairs say less
than pairs of different questions. `docs/measured/promises.md` has the measurements.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from app.core.preference import FloatArray

# The rules by which "pac" counts pairs of one question:
#   one       one pair a question, drawn by a hash before labels are seen; exact
#   adjusted  at most five pairs a question, drawn likewise, with their number divided by the design
#             effect; holds for many questions
#   ignore    all pairs, as if each had its own question
ClusterRule = Literal["one", "adjusted", "ignore"]
# Most pairs of one question that a rule counts.
MOST_PAIRS: Mapping[ClusterRule, int] = {"one": 1, "adjusted": 5}
# The promise of each rule is about a random question of the traffic, or a random judgment of it.
PromisedFor = Literal["question", "judgment"]
PROMISED_FOR: Mapping[ClusterRule, PromisedFor] = {
    "one": "question",
    "adjusted": "judgment",
    "ignore": "judgment",
}
# With fewer questions the design effect is too uncertain.
ENOUGH_QUESTIONS = 200
# If "adjusted" leaves out a larger share of the pairs, its sample is unlike the traffic.
MOST_BEYOND = 0.02
_TEST_DELTA = 0.05
_FEWEST_QUESTIONS = 20
# A digest is so many 64-bit words.
_WORDS = 4
CLUSTER_RULES: tuple[ClusterRule, ...] = ("one", "adjusted", "ignore")


def question_numbers(questions: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers the questions of pairs: pairs of one question have the same number.

    Args:
        questions: Shape (n, 32). Digest of each pair's question; zeros where it is unknown. Such a
            pair counts as its own question.

    Returns:
        Shape (n,). Numbers from 0, without gaps.
    """
    n = len(questions)
    words = np.ascontiguousarray(questions).view(np.uint64).reshape(n, _WORDS)
    known = (words != 0).any(axis=1)
    order = np.lexsort((*words.T[::-1], known))
    sorted_words = words[order]
    # The unknown ones come first, and each of them begins a question.
    begins = ~known[order]
    begins[1:] |= (sorted_words[1:] != sorted_words[:-1]).any(axis=1)
    begins[:1] = True
    numbers = np.empty(n, dtype=np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def drawn_pairs(
    numbers: NDArray[np.int64], lots: NDArray[np.uint64], *, most: int
) -> NDArray[np.bool_]:
    """Draws some pairs of each question: those with the smallest lots.

    Args:
        numbers: Shape (n,). Number of each pair's question, from `question_numbers`.
        lots: Shape (n,). Lot of each pair, from `lots_of`.
        most: Most pairs of a question to draw, at least 1.

    Returns:
        Shape (n,). True for the pairs that were drawn.
    """
    order = np.lexsort((lots, numbers))
    is_early = np.zeros(len(numbers), dtype=bool)
    is_early[most:] = numbers[order][most:] != numbers[order][:-most]
    is_early[:most] = True
    drawn = np.zeros(len(numbers), dtype=bool)
    drawn[order[is_early]] = True
    return drawn


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionSizes:
    """The sizes of questions, and the rule that fits them.

    Args:
        largest: Number of pairs of the largest question.
        p_value: p-value of the test that the error rate of a question does not go with its number
            of pairs; None for fewer than 20 questions, or if all have one size or no error differs.
        beyond: Share of the pairs beyond the first five of their question, which "adjusted" leaves
            out.
        rule: The rule that fits. If the error goes with the size, a random question is not like a
            random judgment: then it is "adjusted", or None if that leaves out too many pairs.
            Otherwise it is "adjusted" for enough questions, and "one", which is exact, for fewer.
    """

    largest: int
    p_value: float | None
    beyond: float
    rule: ClusterRule | None

    @property
    def goes_with_error(self) -> bool:
        """Whether the error of a question goes with its number of pairs."""
        return self.p_value is not None and self.p_value <= _TEST_DELTA


def question_sizes(numbers: NDArray[np.int64], error: NDArray[np.bool_]) -> QuestionSizes | None:
    """Looks at the sizes of questions.

    Args:
        numbers: Shape (n,). Number of each pair's question, from `question_numbers`.
        error: Shape (n,). True where the judge disagrees with the label.

    Returns:
        The sizes; None if each question has one pair.
    """
    pairs = np.bincount(numbers)
    errors = np.bincount(numbers, weights=error).astype(np.int64)[pairs > 0]
    pairs = pairs[pairs > 0]
    if not len(pairs) or pairs.max() == 1:
        return None
    p_value = _of_no_relation(pairs, errors)
    beyond = 1.0 - float(np.minimum(pairs, MOST_PAIRS["adjusted"]).sum() / pairs.sum())
    rule: ClusterRule | None = "adjusted" if len(pairs) >= ENOUGH_QUESTIONS else "one"
    if p_value is not None and p_value <= _TEST_DELTA:
        rule = "adjusted" if beyond <= MOST_BEYOND else None
    return QuestionSizes(largest=int(pairs.max()), p_value=p_value, beyond=beyond, rule=rule)


def _of_no_relation(pairs: NDArray[np.int64], errors: NDArray[np.int64]) -> float | None:
    """p-value of the hypothesis that questions of all sizes have the same error rate.

    The score test of a regression of the errors on the logarithm of the size, with the questions as
    the sampling units. A rank test of error rates fails: small questions often have no error.

    Args:
        pairs: Shape (q,). Number of pairs of each question.
        errors: Shape (q,). Number of errors among them.
    """
    size = np.log(pairs)
    centred = size - (pairs * size).sum() / pairs.sum()
    terms = centred * (errors - errors.sum() / pairs.sum() * pairs)
    spread = np.sqrt((terms**2).sum())
    if len(pairs) < _FEWEST_QUESTIONS or pairs.min() == pairs.max() or spread == 0.0:
        return None
    return float(2.0 * ndtr(-abs(terms.sum()) / spread))


def lots_of(digests: Iterable[str]) -> NDArray[np.uint64]:
    """Returns a lot for each pair, a hash of its digest: no label and no score can influence it."""
    return np.fromiter(map(_lot, digests), dtype=np.uint64)


def _lot(digest: str) -> int:
    text = f"one pair a question\0{digest}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def design_effects(
    uncertainty: ArrayLike, error: ArrayLike, numbers: NDArray[np.int64]
) -> FloatArray:
    """Estimates the design effect up to each distinct score (Rao and Scott 1992).

    It is the variance of the error rate among the pairs at or below the score, with the questions
    as the sampling units, divided by the variance of as many independent pairs, and at least 1.
    Without an error no variance can be estimated; it is then the largest possible one, as if all
    pairs of a question had the same outcome.

    Args:
        uncertainty: Shape (n,). s(x) of each pair, in nats.
        error: Shape (n,). True where the judge disagrees with the label.
        numbers: Shape (n,). Number of each pair's question, from `question_numbers`.

    Returns:
        Shape (m,), for the m distinct scores in ascending order.
    """
    score = np.asarray(uncertainty, dtype=np.float64)
    order = np.argsort(score)
    effects = _effects_of_first(np.asarray(error, dtype=np.int64)[order], numbers[order])
    ends = np.flatnonzero(np.append(np.diff(score[order]) != 0.0, True)[: len(score)])
    return effects[ends]


def _effects_of_first(wrong: NDArray[np.int64], numbers: NDArray[np.int64]) -> FloatArray:
    """The design effect of the error rate among the first 1, 2, ..., n pairs.

    With k_c pairs and e_c errors of question c, q questions, k pairs and the error rate r, it is
    q / (q - 1) * sum (e_c - r k_c)^2 / (k r (1 - r)).

    Args:
        wrong: Shape (n,). 1 for an error, else 0.
        numbers: Shape (n,). Number of each pair's question.

    Returns:
        Shape (n,), at least 1.
    """
    pairs_before, errors_before = _before_in_question(wrong, numbers)
    # Sums over questions of e_c^2, e_c k_c and k_c^2, to which each pair adds a term.
    ee = np.cumsum((errors_before + wrong) ** 2 - errors_before**2)
    ek = np.cumsum((errors_before + wrong) * (pairs_before + 1) - errors_before * pairs_before)
    kk = np.cumsum(2 * pairs_before + 1)
    questions = np.cumsum(pairs_before == 0)
    pairs = np.arange(1, len(wrong) + 1)
    rate = np.cumsum(wrong) / pairs
    spread = ee - 2 * rate * ek + rate**2 * kk
    varies = (rate > 0.0) & (rate < 1.0) & (questions > 1)
    binomial = np.where(varies, pairs * rate * (1.0 - rate), 1.0)
    effect = np.where(
        varies, questions / np.maximum(questions - 1, 1) * spread / binomial, kk / pairs
    )
    bounded: FloatArray = np.maximum(effect, 1.0)
    return bounded


def _before_in_question(
    wrong: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each pair, the numbers of earlier pairs and of earlier errors of its question."""
    # Stable, so that the pairs of a question stay in their order.
    order = np.argsort(numbers, kind="stable")
    begins = np.ones(len(numbers), dtype=bool)
    begins[1:] = np.diff(numbers[order]) != 0
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    earlier_errors = np.cumsum(wrong[order]) - wrong[order]
    pairs, errors = np.empty_like(numbers), np.empty_like(numbers)
    pairs[order] = np.arange(len(numbers)) - first[group]
    errors[order] = earlier_errors - earlier_errors[first][group]
    return pairs, errors
