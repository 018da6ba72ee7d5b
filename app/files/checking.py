"""The one check of labeled rows: what is usable, repeated or contradictory, before any judging.

A pair is the same pair in either order of its responses, as in a calibration set: the swapped pair
with the swapped label agrees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from app.core.comparison import MIRRORED, Comparison, Label
from app.core.fingerprint import example_digest

_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledRow:
    """A row that may have a label, or a problem that makes it unusable.

    Args:
        place: File and line or row number, for people.
        comparison: None where the texts are unknown, so that no other row can be the same pair.
        label: None if it is empty.
        problem: The reason why the row cannot be used.
        unique: Whether no other row has the pair, whatever its texts are.
    """

    place: str
    comparison: Comparison | None = None
    label: Label | None = None
    problem: str | None = None
    unique: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelReport:
    """The outcome of the check of labeled rows; each row counts once.

    Args:
        usable: Number of rows with label A or B that count.
        ties: Number of rows with label "tie" that count.
        unlabelled: Number of rows without a label.
        unusable: The rows that cannot be used.
        repeated: Places of the rows that repeat an earlier pair with the same label.
        contradicting: The rows of each pair with different labels, in the order of the first row.
        without_texts: Number of rows whose texts, and so repetitions, are unknown.
    """

    usable: int = 0
    ties: int = 0
    unlabelled: int = 0
    unusable: Sequence[LabeledRow] = ()
    repeated: Sequence[str] = ()
    contradicting: Sequence[Sequence[LabeledRow]] = ()
    without_texts: int = 0

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return self.usable + self.ties + sum(self.left_out.values())

    @property
    def sentence(self) -> str:
        """All counts in a sentence."""
        counts = (
            (self.ties, "ties" if self.ties != 1 else "tie"),
            (self.unlabelled, "unlabeled"),
            (len(self.unusable), "unusable"),
            (len(self.repeated), "repeated"),
            (sum(map(len, self.contradicting)), "contradict each other"),
        )
        told = [f"{n} {word}" for n, word in counts if n]
        # Pairs that are to be labeled are not usable yet.
        if self.usable or not self.unlabelled:
            told.insert(0, f"{self.usable} usable")
        return f"{self.rows} row{'s' * (self.rows != 1)}: {', '.join(told)}"

    @property
    def details(self) -> list[str]:
        """A sentence for each kind of row that does not count, with the first of them."""
        reasons = Counter(row.problem for row in self.unusable)
        told = []
        # One more is shown instead of being counted.
        shown = _SHOWN + (len(reasons) == _SHOWN + 1)
        for reason, number in reasons.most_common(shown):
            places = [row.place for row in self.unusable if row.problem == reason]
            told.append(f"unusable, {number}: {reason} ({_listed(places)})")
        if len(reasons) > shown:
            told.append(f"unusable for {len(reasons) - shown} other reasons")
        if self.repeated:
            told.append(f"repeated: {_listed(self.repeated)}")
        if self.contradicting:
            pairs = [
                " and ".join(f"{row.place} ({row.label})" for row in rows)
                for rows in self.contradicting
            ]
            told.append(f"contradict each other, so that none of them counts: {_listed(pairs)}")
        if self.without_texts:
            told.append(f"{self.without_texts} without texts, so a repeated pair is not recognized")
        return told

    @property
    def left_out(self) -> dict[str, int]:
        """Reason -> number of rows that do not count, without ties."""
        counts = Counter(str(row.problem) for row in self.unusable)
        counts["no label"] += self.unlabelled
        counts["a repeated pair"] += len(self.repeated)
        counts["contradicting labels"] += sum(map(len, self.contradicting))
        return {reason: number for reason, number in counts.items() if number}

    def without(self, unusable: Sequence[LabeledRow]) -> "LabelReport":
        """The report after usable rows turned out to be unusable."""
        return replace(
            self, usable=self.usable - len(unusable), unusable=(*self.unusable, *unusable)
        )


Row = TypeVar("Row", bound=LabeledRow)


def checked(rows: Iterable[Row]) -> tuple[list[Row], LabelReport]:
    """Finds the rows that count; long work for large texts, because each text is hashed.

    No row of a pair with different labels counts. A tie and a side differ, too.

    Returns:
        The rows that count, in order: one for each pair with label A, B or "tie"; and the report on
        all rows.
    """
    unusable: list[LabeledRow] = []
    pairs: dict[str, list[Row]] = defaultdict(list)
    unknown = 0
    for number, row in enumerate(rows):
        if row.problem is not None:
            unusable.append(row)
        elif row.comparison is None or row.unique:
            unknown += not row.unique
            pairs[f"row {number}"].append(row)
        else:
            pairs[example_digest("", row.comparison)].append(row)
    kept: list[Row] = []
    repeated: list[str] = []
    contradicting: list[Sequence[LabeledRow]] = []
    for same in pairs.values():
        labelled = [row for row in same if row.label is not None]
        found = labelled or same[:1]
        told = [replace(row, label=_in_order_of(found[0], row)) for row in labelled]
        if len({row.label for row in told}) > 1:
            contradicting.append(told)
            repeated += [row.place for row in same if row.label is None]
        else:
            kept.append(found[0])
            repeated += [row.place for row in same if row is not found[0]]
    report = LabelReport(
        usable=sum(row.label in ("A", "B") for row in kept),
        ties=sum(row.label == "tie" for row in kept),
        unlabelled=sum(row.label is None for row in kept),
        unusable=unusable,
        repeated=repeated,
        contradicting=contradicting,
        without_texts=unknown,
    )
    return [row for row in kept if row.label is not None], report


def _in_order_of(first: LabeledRow, row: LabeledRow) -> Label:
    """The label of a row, in the order of the responses of the first row of its pair."""
    assert row.label is not None, "the row is labeled"
    return row.label if first.comparison == row.comparison else MIRRORED[row.label]


def _listed(items: Sequence[str]) -> str:
    return "; ".join(items[:_SHOWN]) + ("; ..." if len(items) > _SHOWN else "")
