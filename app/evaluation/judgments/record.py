"""The answers of one judge about one labeled pair."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.core.comparison import Side
from app.ports import Generated

# A kind of question about a pair. "orders" asks for the score, in both orders if the judge sees
# orders, "verbalized" for a confidence in words, "annotators" for a verdict as each of several
# personas, and "samples" for several verdicts drawn at a temperature.
Observation = Literal["orders", "verbalized", "annotators", "samples"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedPair:
    """One labeled pair with the judge's answers; None for questions that were not asked.

    A pair has at most one of `gaps` and `p`. All pairs of a judge have the same one.

    Args:
        dataset: Name of the data set; "" in files that `evaluate` did not write.
        id: Unique within the data set.
        group: Identifies the question: pairs of one group are not independent.
        swapped: Whether response_a here is response_b in the data.
        text: Digest of the question and the responses. Answers to another text are discarded.
        judge: Name of the judge; None in files that do not name it.
        fingerprint: Fingerprint of the judge; None in files that `evaluate` did not write.
        gaps: Logit of response_a minus that of response_b, with response_a shown first and second;
            or the difference of a reward model's scores.
        orders: 1 if the judge has seen each response alone, so that the two numbers of `gaps` or
            `p` are one number; None if it has seen both orders, or nothing says it.
        label_mass: Probability on the two labels, in [0, 1]; the smaller of the two orders.
        p: Probability or vote share of response_a in [0, 1], shown first and second.
        verbalized: The answer to the request for a confidence.
        annotators: Logit gap of each persona, with response_a shown first.
        samples: Answers drawn at a temperature, with response_a shown first.
        failed: Error code of each observation that failed.
        asked: Digest of the question of each observation. An equal question is not asked again.
    """

    dataset: str
    id: str
    group: str | None
    label: Side
    swapped: bool = False
    text: str | None = None
    judge: str | None = None
    fingerprint: str | None = None
    gaps: tuple[float, float] | None = None
    orders: Literal[1] | None = None
    label_mass: float | None = None
    p: tuple[float, float] | None = None
    verbalized: Generated | None = None
    annotators: tuple[float, ...] | None = None
    samples: tuple[Generated, ...] | None = None
    failed: Mapping[Observation, str] | None = None
    asked: Mapping[Observation, str] | None = None

    @property
    def has_answers(self) -> bool:
        """Whether the judge has answered any question."""
        answers = (getattr(self, name) for names in _ANSWERS.values() for name in names)
        return any(answer is not None for answer in answers)

    @property
    def has_both_orders(self) -> bool:
        """Whether the judge has a preference in each of the two orders."""
        return self.orders is None and (self.gaps is not None or self.p is not None)

    def only(self, observations: Collection[Observation]) -> "JudgedPair":
        """The same pair with the answers and failures of these observations only."""
        return replace(
            self._without_answers([other for other in _ANSWERS if other not in observations]),
            failed={k: v for k, v in (self.failed or {}).items() if k in observations} or None,
            asked={k: v for k, v in (self.asked or {}).items() if k in observations} or None,
        )

    def updated_by(self, later: "JudgedPair") -> "JudgedPair":
        """The same pair after a later line of the file.

        The later line overrides what it says and keeps the rest. An observation that it asks again
        loses its earlier answer and its earlier failure. Answers to another text are discarded.
        """
        if self.text != later.text:
            return later
        again = later.asked or {}
        kept = self._without_answers(again)
        answers = [name for names in _ANSWERS.values() for name in names]
        failed = {k: v for k, v in (self.failed or {}).items() if k not in again}
        return replace(
            later,
            **{name: getattr(kept, name) for name in answers if getattr(later, name) is None},
            failed={**failed, **(later.failed or {})} or None,
            asked={**(self.asked or {}), **again} or None,
        )

    def _without_answers(self, observations: Collection[Observation]) -> "JudgedPair":
        names = (name for observation in observations for name in _ANSWERS[observation])
        without: dict[str, Any] = dict.fromkeys(names)
        return replace(self, **without)


# Observation -> the fields of its answer.
_ANSWERS: Mapping[Observation, tuple[str, ...]] = {
    "orders": ("gaps", "orders", "label_mass", "p"),
    "verbalized": ("verbalized",),
    "annotators": ("annotators",),
    "samples": ("samples",),
}
