"""Pairs on which two people disagreed, for a person who decides, and how far people agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.agreement import Agreement
from app.core.comparison import Label
from app.ports import AuditStore
from app.service.auditing.auditor import Auditor
from app.service.auditing.ledger import OPINIONS, Opinion, Rows
from app.service.auditing.texts import key_of
from app.service.calibration.cache import Calibrations
from app.service.labelling.pairs import BlindPair, Choice
from app.service.labelling.queue import pair_of
from app.service.off_loop import off_loop

# Disagreements that somebody gets at once; the texts of one may have 128 KiB.
MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A pair with two different opinions.

    Args:
        pair: The pair, whose key is the id of its audit.
        choices: Both opinions, without their order; None if the pair cannot be labelled.
    """

    pair: BlindPair
    choices: Sequence[Choice | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreements:
    """The opinions about the pairs of a set.

    Args:
        agreement: How far people agree.
        open: Number of pairs that wait for a decision.
        shown: The oldest of them whose texts the service has.
    """

    agreement: Agreement
    open: int
    shown: Sequence[Disagreement]

    @property
    def words(self) -> str:
        """How far people agree, in two sentences."""
        found, noise = self.agreement, self.agreement.label_noise
        if not found.pairs:
            return "No pair has the labels of two people."
        pairs = "1 pair" if found.pairs == 1 else f"{found.pairs} pairs"
        words = f"People disagreed on {found.disagreements} of {pairs}"
        if found.kappa is not None and found.kappa_interval is not None:
            low, high = found.kappa_interval
            words += f" (kappa {found.kappa:.2f}, {low:.2f} to {high:.2f})"
        if noise is None:
            return f"{words}."
        return (
            f"{words}. Label noise is at most {noise.high:.2f}; {noise.low:.2f} is safe to "
            "calibrate with."
        )


class DisagreementFinder:
    """Finds the disagreements of all sets of one service.

    Args:
        store: Keeps texts.
        auditor: Has the opinions.
        calibrations: The sets.
    """

    def __init__(self, store: AuditStore, auditor: Auditor, calibrations: Calibrations) -> None:
        self._store = store
        self._auditor = auditor
        self._calibrations = calibrations

    async def of(self, name: str) -> Disagreements:
        """Returns the disagreements of a set.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        await self._calibrations.get(name)
        rows = await self._auditor.open_draws(name)
        opinions = self._auditor.ledger.opinions(name)
        kept = await self._store.audit_text_keys() if opinions else set[str]()
        agreement, keys = await off_loop(_looked_at, rows, opinions)
        oldest = [key for key in keys if key in kept][:MOST_SHOWN]
        pairs = await off_loop(_pairs, oldest, await self._store.audit_texts(oldest))
        shown = [self._disagreement(pair) for pair in pairs]
        return Disagreements(agreement=agreement, open=len(keys), shown=shown)

    def _disagreement(self, pair: BlindPair) -> Disagreement:
        audit = self._auditor.ledger.audit(pair.key)
        assert audit is not None, "its opinions were read from the ledger"
        choices = [
            pair.choice_of(audit.turned(opinion.label, pair.key)) for opinion in audit.opinions
        ]
        return Disagreement(pair=pair, choices=sorted(choices, key=str))


def _looked_at(
    rows: Rows, opinions: Mapping[str, tuple[Opinion, ...]]
) -> tuple[Agreement, list[str]]:
    """Returns the agreement, and the keys of the pairs that wait for a decision, oldest first.

    Args:
        rows: The audits of `Ledger.open_draws`.
        opinions: Key of a pair -> its opinions.
    """
    both = {key: given for key, given in opinions.items() if len(given) == OPINIONS}
    labels = list[tuple[Label, Label]]()
    for given in both.values():
        # By name, so that two people keep their places whoever answers first.
        one, other = (opinion.label for opinion in sorted(given, key=lambda each: each.by))
        if one != "none" and other != "none":
            labels.append((one, other))
    return Agreement.of(labels), [
        key for each in rows["id"].tolist() if (key := key_of(each.hex())) in both
    ]


def _pairs(keys: Sequence[str], written: Mapping[str, str]) -> list[BlindPair]:
    """Reads pairs, without those that another program wrote; long work for long texts."""
    pairs = (pair_of(key, written.get(key)) for key in keys)
    return [pair for pair in pairs if pair is not None]
