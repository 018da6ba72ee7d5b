"""Reads the log of audits into a ledger."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.ports import AuditStore
from app.service.auditing.entries import Entry, parse_entry
from app.service.auditing.ledger import Ledger
from app.service.off_loop import off_loop

# Entries that are read in one step. Parsing one takes 10 us, and applying it another 10 us.
_PAGE = 500
_MOST_PARSED_ON_LOOP = 20


class PlacedEntry(NamedTuple):
    """An entry with its position and its text; None for an entry that cannot be parsed."""

    position: int
    text: str
    entry: Entry | None


class Replay:
    """A ledger, and the text of its last entry, by which another log is noticed."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._last_text: str | None = None

    def apply(self, entries: Iterable[PlacedEntry]) -> None:
        """Applies the next entries; those that the ledger has change nothing."""
        for position, text, entry in entries:
            if position > self.ledger.position:
                self.ledger.apply(position, entry)
                self._last_text = text

    async def read_to(self, store: AuditStore, end: int) -> bool:
        """Applies all entries of the store up to a position.

        Returns:
            False if the store has another log than before, such as a restored backup.

        Raises:
            StoreUnavailableError: The store does not answer.
            StoreCorruptError: The store was changed by another program.
        """
        while self.ledger.position < end:
            position, last_text = self.ledger.position, self._last_text
            # The last known entry is read again, to compare it.
            known = 0 if last_text is None else 1
            wanted = known + min(_PAGE, end - position)
            page = await store.audits(after=position - known, limit=wanted)
            if [text for _, text in page[:known]] != [last_text][:known]:
                return False
            if len(page) == known:
                break
            entries = page[known:]
            if len(entries) <= _MOST_PARSED_ON_LOOP:
                self.apply(_parsed(entries))
            else:
                self.apply(await off_loop(_parsed, entries))
        return True


def _parsed(page: Sequence[tuple[int, str]]) -> list[PlacedEntry]:
    return [PlacedEntry(position, text, _entry(text)) for position, text in page]


def _entry(text: str) -> Entry | None:
    """Parses an entry; one that no release wrote must not hide the others."""
    try:
        return parse_entry(text)
    except ValueError:
        return None
