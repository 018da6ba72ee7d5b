"""How far two people agree who labelled the same pairs without seeing each other's labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.comparison import Label
from app.core.noise import LabelNoiseBounds
from app.core.shares import clopper_pearson

# The probability with which the interval holds.
_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The agreement of two people.

    Args:
        pairs: Number of pairs that both labelled, ties included.
        disagreements: Number of those with two different labels.
        kappa: Agreement beyond chance, at most 1; None if chance alone explains all agreement.
        kappa_interval: Low and high end of its 95% interval; None without it.
        label_noise: Bounds on the label noise, from the pairs without ties; None if there is no
            such pair.
    """

    pairs: int
    disagreements: int
    kappa: float | None
    kappa_interval: tuple[float, float] | None
    label_noise: LabelNoiseBounds | None

    @classmethod
    def of(cls, labels: Sequence[tuple[Label, Label]]) -> "Agreement":
        """Computes Cohen's kappa, 1 - d / e, and the label noise.

        d is the share of the pairs with different labels, and e the share that two people would
        have by chance, each with their own shares of A, B and ties (Cohen 1960).

        The interval is that of Clopper and Pearson (1934) for d, with e as it was observed. The
        asymptotic one of Fleiss, Cohen and Everitt (1969) has no width if nobody disagrees, which
        is common among few pairs.

        Args:
            labels: The labels of both people for each pair.
        """
        sides = [one != other for one, other in labels if "tie" not in (one, other)]
        differing = sum(one != other for one, other in labels)
        kappa, interval = None, None
        if chance := _chance_of_disagreement(labels):
            ends = clopper_pearson(differing, len(labels), tail=(1.0 - _LEVEL) / 2.0)
            low, high = (float(end) for end in ends)
            kappa = 1.0 - differing / len(labels) / chance
            interval = (max(-1.0, 1.0 - high / chance), 1.0 - low / chance)
        return cls(
            pairs=len(labels),
            disagreements=differing,
            kappa=kappa,
            kappa_interval=interval,
            label_noise=LabelNoiseBounds.of(sum(sides), len(sides)) if sides else None,
        )


def _chance_of_disagreement(labels: Sequence[tuple[Label, Label]]) -> float:
    """Probability that two people with these shares of labels differ by chance; 0 for no pair."""
    if not labels:
        return 0.0
    ones, others = Counter(one for one, _ in labels), Counter(other for _, other in labels)
    equal = sum(ones[label] * others[label] for label in ones)
    return 1.0 - equal / len(labels) ** 2
