"""Calibrating: labelled comparisons -> scores -> the next version of a calibration set.

Every change stands in the set's trail, and any version can be had back.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from app.core.calibration import Calibration, LabelledScore
from app.core.comparison import LabelledComparison
from app.core.errors import (
    CalibrationNotFoundError,
    JudgmentFailedError,
    ScopeJudgeError,
    StoreCorruptError,
    VersionNotFoundError,
)
from app.core.fingerprint import batch_digest, example_digest
from app.ports import CalibrationStore
from app.service.calibration.cache import Calibrations, refuse_other_judge
from app.service.calibration.history import (
    Change,
    ChangeRecord,
    Counts,
    Difference,
    as_it_was,
)
from app.service.calibration.writer import Committer
from app.service.judging.judge import Judge, Score
from app.service.off_loop import off_loop

_PROGRESS_CHUNK = 64

logger = logging.getLogger("app.calibrations")


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """What became of one labelled batch.

    Args:
        calibration: The set after the batch.
        added: Examples that were new.
        updated: Examples that were there, or stood twice in the batch; the last label counts.
        ties: Examples without a side, which are left out.
        removed: Examples that were there and are a tie now.
        failed: (index in the batch, error) of examples that could not be judged.
    """

    calibration: Calibration
    added: int
    updated: int
    ties: int
    removed: int
    failed: tuple[tuple[int, ScopeJudgeError], ...]


class _Batch(NamedTuple):
    """A judged batch, ready to be put on whatever is there.

    Args:
        changes: Digest -> labelled score; None for a tie.
        label_noise: Of the set from now on; None leaves it as it is.
        judged: Examples that were judged, repetitions included.
        ties: Examples without a side.
        failed: Examples that could not be read or judged.
        digest: As `core.fingerprint.batch_digest`.
    """

    changes: Mapping[str, LabelledScore | None]
    label_noise: float | None
    judged: int
    ties: int
    failed: int
    digest: str

    def on(self, before: Calibration) -> tuple[Calibration, Counts] | None:
        """The examples and label noise of the next version; None if the batch changes nothing."""
        scored = {digest: score for digest, score in self.changes.items() if score is not None}
        known = before.table
        removed = [d for d, s in self.changes.items() if s is None and d in known]
        noise = before.label_noise if self.label_noise is None else self.label_noise
        differs = any(known.get(digest) != score for digest, score in scored.items())
        if not differs and not removed and noise == before.label_noise:
            return None
        examples = known.changed(scored, removed)
        added = len(examples) - before.n + len(removed)
        counts = Counts(added, self.judged - added, self.ties, len(removed), self.failed)
        return replace(before, label_noise=noise, examples=examples), counts


class Calibrator:
    """Changes calibration sets, and tells who changed them.

    Args:
        judge: Whose sets they are.
        store: Where they are kept.
        calibrations: Their read side, which is told of each change.
        now: The time in UTC, for the trail.
    """

    def __init__(
        self,
        judge: Judge,
        store: CalibrationStore,
        calibrations: Calibrations,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._judge = judge
        self._store = store
        self._calibrations = calibrations
        self._committer = Committer(store, calibrations)
        self._now = now

    async def add(
        self,
        name: str,
        examples: Sequence[LabelledComparison],
        *,
        label_noise: float | None = None,
        by: str = "service",
        unread: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> CalibrationReport:
        """Judges a labelled batch and adds it, all of it in one version or nothing.

        Args:
            name: Of the set; it is made if there is none.
            examples: The batch; the same comparison again updates its label and adds nothing, and
                as a tie it is removed. Of several in one batch the last one counts.
            label_noise: In [0, 0.5), of the whole set from now on; None leaves it as it is.
            by: Who posted it, for the trail.
            unread: Examples of what was posted that could not be read, for the trail.
            on_progress: Called with the number of examples judged so far.

        Returns:
            What became of the batch. A batch that changes nothing writes nothing, and so does one
            that is posted again with the same scores; the version of a set that does not exist then
            is 0.

        Raises:
            JudgeMismatchError: The set belongs to another judge; nothing was judged.
            JudgmentFailedError: The judge judged no example at all; nothing was added.
            UnavailableError: Nothing was added, or, where the store broke off, all of it may have
                been; posting the batch again is safe.
        """
        present = await self._calibrations.current(name)
        if present is not None:
            refuse_other_judge(present, self._judge.fingerprint)
        scores = await self._scores(examples, on_progress)
        # Whoever reads only the status must not take it for done.
        if scores and all(isinstance(score, JudgmentFailedError) for score in scores.values()):
            raise JudgmentFailedError(f"the judge judged none of {len(scores)} examples")
        batch, failed = await off_loop(self._batch, examples, scores, label_noise, unread)
        calibration, counts = await self._put(name, batch, by)
        return CalibrationReport(
            calibration=calibration,
            added=counts.added,
            updated=counts.updated,
            ties=counts.ties,
            removed=counts.removed or 0,
            failed=tuple(failed),
        )

    def _batch(
        self,
        examples: Sequence[LabelledComparison],
        scores: Mapping[int, Score | ScopeJudgeError],
        label_noise: float | None,
        unread: int,
    ) -> tuple[_Batch, list[tuple[int, ScopeJudgeError]]]:
        """What to write, and the examples that could not be judged; digests of large texts."""
        changes: dict[str, LabelledScore | None] = {}
        failed: list[tuple[int, ScopeJudgeError]] = []
        for i, example in enumerate(examples):
            score = scores.get(i)
            if isinstance(score, ScopeJudgeError):
                failed.append((i, score))
            else:
                digest = example_digest(self._judge.fingerprint, example.comparison)
                changes[digest] = _labelled(score, example)
        batch = _Batch(
            changes,
            label_noise,
            judged=len(scores) - len(failed),
            ties=len(examples) - len(scores),
            failed=len(failed) + unread,
            digest=batch_digest(examples),
        )
        return batch, failed

    async def _scores(
        self,
        examples: Sequence[LabelledComparison],
        on_progress: Callable[[int], None] | None,
    ) -> dict[int, Score | ScopeJudgeError]:
        """Judges the examples that are no ties, by their place in the batch."""
        indices = [i for i, example in enumerate(examples) if example.label != "tie"]
        chunk = _PROGRESS_CHUNK if on_progress else max(1, len(indices))
        found: dict[int, Score | ScopeJudgeError] = {}
        for start in range(0, len(indices), chunk):
            some = indices[start : start + chunk]
            scores = await self._judge.score([examples[i].comparison for i in some])
            found.update(zip(some, scores, strict=True))
            if on_progress:
                on_progress(len(found))
        return found

    async def _put(self, name: str, batch: _Batch, by: str) -> tuple[Calibration, Counts]:
        """Writes the next version, on top of whatever others wrote meanwhile."""

        async def attempt(number: int) -> tuple[Calibration, Counts] | None:
            found = await self._calibrations.current(name)
            before = found or self._empty(name)
            refuse_other_judge(before, self._judge.fingerprint)
            put = await off_loop(batch.on, before)
            if put is None:
                return before, Counts(0, batch.judged, batch.ties, 0, batch.failed)
            after, counts = put
            change = Change("calibrate", by, self._now(), counts, batch_digest=batch.digest)
            written = await self._committer.write(number, found, after, change)
            return (written, counts) if written else None

        return await self._committer.until_written(name, attempt)

    async def rollback(self, name: str, version: int, *, by: str = "service") -> Calibration:
        """Makes a set what it was at an earlier version, as a new version.

        A set that is so already is left alone, so that asking twice changes nothing. One that was
        deleted is made again.

        Args:
            name: Of the set.
            version: To go back to.
            by: Who asked for it, for the trail.

        Returns:
            The set, with exactly the examples and the label noise of that version.

        Raises:
            CalibrationNotFoundError: There is no such set and never was.
            VersionNotFoundError: There is no such version, or what it was cannot be told any more.
            JudgeMismatchError: That version belongs to another judge.
            StoreUnavailableError: The store does not answer; asking again is safe.
        """

        async def attempt(number: int) -> Calibration | None:
            if number == 1:
                raise _not_found(name)
            # Read and checked anew: what is taken back must be a change of what is there.
            now = await self._calibrations.current(name, read_anew=True)
            was = await self._earlier(name, version, number=number, now=now)
            if was is None:
                return None
            refuse_other_judge(was, self._judge.fingerprint)
            counts = await off_loop(_counts_between, now, was)
            if now is not None and not any(counts) and _same_but_for_examples(now, was):
                return now
            change = Change("rollback", by, self._now(), counts, rolled_back_to=version)
            return await self._committer.write(number, now, was, change)

        return await self._committer.until_written(name, attempt)

    async def _earlier(
        self, name: str, version: int, *, number: int, now: Calibration | None
    ) -> Calibration | None:
        """The set as it was at a version; None if a change took the number since `now` was read."""
        way_back = as_it_was(self._store, version, now=now, blank=self._empty(name))
        try:
            return await self._committer.counted(way_back)
        except VersionNotFoundError:
            # The trail does not lead on from `now` where it has grown meanwhile.
            if await self._committer.last_number(name) >= number:
                return None
            raise

    async def delete(self, name: str, *, by: str = "service") -> None:
        """Removes a set, but not its trail.

        One that cannot be read is removed too, and cannot be had back.

        Args:
            name: Of the set.
            by: Who asked for it, for the trail.

        Raises:
            CalibrationNotFoundError: There is none.
            StoreUnavailableError: The store does not answer.
        """

        async def attempt(number: int) -> bool | None:
            try:
                before = await self._calibrations.current(name)
            except StoreCorruptError:
                removed, before = None, None
            else:
                if before is None:
                    raise _not_found(name)
                removed = before.n
            change = Change("delete", by, self._now(), Counts(removed=removed))
            return True if await self._committer.delete(number, name, before, change) else None

        await self._committer.until_written(name, attempt)

    async def versions(self, name: str, *, before: int | None, limit: int) -> list[ChangeRecord]:
        """The trail of a set, newest first; a deleted set still has one.

        Entries that this version cannot read are left out, as one of them must not hide the rest:
        the numbers show the gap, and the log tells of it.

        Args:
            name: Of the set.
            before: Only versions below this one; None for all.
            limit: At most so many, and fewer only at the beginning of the trail.

        Raises:
            CalibrationNotFoundError: There is no such set and never was.
            StoreUnavailableError: The store does not answer.
        """
        counted, asked_for = self._committer.counted, limit
        while True:
            asked = self._store.revisions(name, before=before, limit=asked_for)
            found = await counted(asked)
            if not found and await self._committer.last_number(name) == 0:
                raise _not_found(name)
            # A thousand of them take a tenth of a second to read.
            records = await off_loop(_readable, name, found)
            # Whoever pages takes an empty page for the end.
            if len(records) >= limit or len(found) < asked_for:
                return records[:limit]
            asked_for *= 2

    def _empty(self, name: str) -> Calibration:
        return Calibration(
            name=name,
            write_id="",
            version=0,
            judge=self._judge.name,
            fingerprint=self._judge.fingerprint,
            label_noise=0.0,
            examples={},
            min_label_mass=self._calibrations.min_label_mass,
        )


def _readable(name: str, entries: Sequence[str]) -> list[ChangeRecord]:
    """The entries that this version can read."""
    records = []
    for entry in entries:
        try:
            records.append(ChangeRecord.read(name, entry))
        except StoreCorruptError as exc:
            logger.warning("%s; it is left out", exc.detail)
    return records


def _labelled(score: Score | None, example: LabelledComparison) -> LabelledScore | None:
    """The calibration point; None for a tie, which is none."""
    if example.label == "tie":
        return None
    assert score is not None, "every example that is no tie is judged"
    return LabelledScore(score.gap_fwd, score.gap_rev, score.label_mass, example.label)


def _counts_between(now: Calibration | None, was: Calibration) -> Counts:
    """What it does to the examples to go back."""
    put, take = Difference.between(now, was)
    added = sum(digest not in now.table for digest in put) if now else len(put)
    return Counts(added, len(put) - added, removed=len(take))


def _same_but_for_examples(one: Calibration, other: Calibration) -> bool:
    return (one.fingerprint, one.label_noise) == (other.fingerprint, other.label_noise)


def _not_found(name: str) -> CalibrationNotFoundError:
    return CalibrationNotFoundError(f"there is no calibration {name!r}")
