"""Changes calibration sets: adds labeled batches, restores versions, deletes sets.

Every change becomes an entry of the set's trail, and every version of a set can be restored.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from app.core.calibration import Calibration
from app.core.cascade import CascadePlan
from app.core.comparison import Comparison, LabeledComparison
from app.core.errors import (
    CalibrationNotFoundError,
    CascadeError,
    JudgeMismatchError,
    JudgmentFailedError,
    ScopeJudgeError,
    SetFullError,
    StoreCorruptError,
    VersionNotFoundError,
)
from app.core.fingerprint import INPUTS_DIFFER
from app.judges.cascade import CascadeScorer
from app.judges.scorer import ScoreOutcome, Scorer
from app.off_loop import off_loop
from app.ports import KEPT_VERSIONS, Entry, Head, SetStore
from app.sets.batch import (
    JudgedBatch,
    JudgedExample,
    ScoredExample,
    digested,
    examples_of,
)
from app.sets.cache import Calibrations, refuse_other_judge
from app.sets.codec import decode
from app.sets.trail import Change, Edit
from app.sets.writer import Writer, next_number

_PROGRESS_CHUNK = 64
# Pairs of a set, with and without labels.
MOST_PAIRS = 50_000

logger = logging.getLogger("app.calibrations")


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationReport:
    """The outcome of one labeled batch.

    Args:
        calibration: The set after the batch.
        added: Number of new examples.
        updated: Number of examples that the set already had or that the batch repeats. The last
            label counts.
        ties: Number of examples without a preferred side; the set keeps them for their scores.
        removed: Number of examples of the set that the batch removed.
        n_before: Number of examples of the set before it.
        failed: (index in the batch, error) of each example that could not be judged.
    """

    calibration: Calibration
    added: int
    updated: int
    ties: int
    removed: int
    n_before: int
    failed: tuple[tuple[int, ScopeJudgeError], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """A change on top of the present version of a set; nothing is written.

    Args:
        before: The set as it is.
        after: The set as it would be; `before` itself if the batch changes nothing.
        edit: The change, for the trail.
        failed: (index in the batch, error) of each example that could not be judged.
    """

    before: Calibration
    after: Calibration
    edit: Edit
    failed: tuple[tuple[int, ScopeJudgeError], ...]

    @property
    def present(self) -> Calibration | None:
        """The set as it is; None if there is none, and `before` is without examples."""
        return self.before if self.before.write_id else None

    @property
    def report(self) -> CalibrationReport:
        """The outcome of the change."""
        return CalibrationReport(
            calibration=self.after,
            added=self.edit.added,
            updated=self.edit.updated,
            ties=self.edit.ties,
            removed=self.edit.removed or 0,
            n_before=self.before.n,
            failed=self.failed,
        )


# Looks at a change before it is written; raises an error to refuse it.
Check = Callable[[Preview], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolReport:
    """The outcome of adding pairs without labels.

    Args:
        batch: The judged pairs, in order.
        outcome: The set afterwards. `updated` counts the pairs that it already had or that the
            request repeats.
    """

    batch: JudgedBatch
    outcome: CalibrationReport

    @property
    def digests(self) -> list[str | None]:
        """Digest of each pair, in order; None for those that failed."""
        return [
            example.digest if isinstance(example, JudgedExample) else None
            for example in self.batch.examples
        ]


class Calibrator:
    """Changes calibration sets and lists their trails.

    Args:
        scorer: Scores labeled comparisons. Only sets of its judge can be changed.
        store: The store that keeps the sets.
        calibrations: The cache of the sets, updated with each change.
        now: Returns the current time in UTC, for the trail.
    """

    def __init__(
        self,
        scorer: Scorer,
        store: SetStore,
        calibrations: Calibrations,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._scorer = scorer
        self._identity = scorer.identity
        runtime = scorer.identity.runtime
        self._runtimes = () if runtime is None else (runtime,)
        self._store = store
        self._calibrations = calibrations
        self._writer = Writer(store, calibrations)
        self._now = now

    async def add(
        self,
        name: str,
        examples: Sequence[LabeledComparison],
        *,
        by: str = "service",
        unread: int = 0,
        on_progress: Callable[[int], None] | None = None,
    ) -> CalibrationReport:
        """Judges a labeled batch and adds it to a set, all in one version or not at all.

        Adding is idempotent. A comparison that the set already has updates its label and adds no
        example. A tie keeps its score, which counts for drift and not for the error. The last label
        counts if a batch repeats a comparison.

        Args:
            name: Name of the calibration set; a missing set is made.
            examples: The labeled batch.
            by: Name of the key that posted the batch, for the trail.
            unread: Number of posted examples that could not be parsed, for the trail.
            on_progress: Called with the number of examples judged so far.

        Returns:
            The outcome. A batch that changes nothing makes no version. If the set does not exist
            then, its version in the outcome is 0.

        Raises:
            JudgeMismatchError: The set belongs to another judge; nothing was judged.
            JudgmentFailedError: Every example failed; nothing was added.
            UnavailableError: Nothing was added; or everything was, if the connection to the store
                broke. Posting the batch again is safe.
        """
        batch = await self.judged(name, examples, unread=unread, on_progress=on_progress)
        return await self.put(name, batch, by=by)

    async def judged(
        self,
        name: str,
        examples: Sequence[LabeledComparison],
        *,
        unread: int = 0,
        replaces: bool = False,
        adds: bool = True,
        on_progress: Callable[[int], None] | None = None,
    ) -> JudgedBatch:
        """Judges a labeled batch for a set, and changes nothing.

        The arguments are those of `add`. With `replaces`, the batch is to remove all other examples
        of the set. Without `adds`, nothing is to be done with it.

        Raises:
            JudgeMismatchError: The set belongs to another judge; nothing was judged.
            SetFullError: The set has no room for the batch; nothing was judged.
            JudgmentFailedError: Every example failed.
            UnavailableError: The engine or the store does not answer.
        """
        present = await self._present(name)
        comparisons = [example.comparison for example in examples]
        if adds:
            await self._refuse_above_limit(name, None if replaces else present, comparisons)
        scores = await self._scores(comparisons, "examples", on_progress)
        scored = [
            ScoredExample(labelled=example, score=score)
            for example, score in zip(examples, scores, strict=True)
        ]
        return await off_loop(
            JudgedBatch.of,
            scored,
            fingerprint=self._identity.fingerprint,
            unread=unread,
            replaces=replaces,
            runtimes=self._runtimes,
        )

    async def _refuse_above_limit(
        self, name: str, present: Calibration | None, comparisons: Sequence[Comparison]
    ) -> None:
        """Raises SetFullError if comparisons have no room beside the present examples."""
        known = examples_of(present)
        if len(known) + len(comparisons) > MOST_PAIRS:
            fingerprint = self._identity.fingerprint
            pairs = await off_loop(digested, comparisons, fingerprint=fingerprint)
            new = {digest for digest, _ in pairs if digest not in known}
            _refuse_full(name, len(known) + len(new))

    async def _present(self, name: str) -> Calibration | None:
        """Returns the set as it is now; raises JudgeMismatchError if another judge made it."""
        present = await self._calibrations.current(name)
        if present is not None:
            refuse_other_judge(present, self._identity.fingerprint)
        self._refuse_without_plan(name, present)
        return present

    def _refuse_without_plan(self, name: str, present: Calibration | None) -> None:
        if isinstance(self._scorer, CascadeScorer) and present is None:
            raise CascadeError(
                f"calibration {name!r} has no plan yet, which a cascade needs before its first "
                "label: run `scope-judge cascade plan` on pairs without labels"
            )

    async def plan(self, name: str, plan: CascadePlan, *, by: str) -> Calibration:
        """Makes the first version of a cascade's set, which has no example yet.

        Raises:
            CascadeError: There is a set of this name: its plan is fixed.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """

        async def attempt(head: Head | None) -> Calibration | None:
            if await self._calibrations.current(name) is not None:
                raise CascadeError(
                    f"there is a calibration {name!r}, and its plan was fixed before its first "
                    "label: use another name, or delete the calibration first"
                )
            edit = Edit(action="plan", by=by, at=self._now())
            planned = replace(self._empty(name), cascade=plan)
            return await self._writer.write(head, None, planned, edit)

        return await self._writer.until_written(name, attempt)

    async def scores(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores comparisons for no set; raises UnavailableError if the judge does not answer."""
        return list(await self._scorer.score(comparisons))

    async def _scores(
        self,
        comparisons: Sequence[Comparison],
        kind: str,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[ScoreOutcome]:
        """Scores comparisons, in small chunks if somebody watches.

        Raises:
            JudgmentFailedError: All of them failed. A client that reads only the HTTP status must
                not take this for a success.
        """
        chunk = _PROGRESS_CHUNK if on_progress else max(1, len(comparisons))
        scores: list[ScoreOutcome] = []
        for start in range(0, len(comparisons), chunk):
            scores += await self._scorer.score(comparisons[start : start + chunk])
            if on_progress:
                on_progress(len(scores))
        if scores and all(isinstance(score, JudgmentFailedError) for score in scores):
            raise JudgmentFailedError(f"the judge failed on all {len(scores)} {kind}")
        return scores

    async def pool(
        self,
        name: str,
        comparisons: Sequence[Comparison],
        *,
        by: str = "service",
        unread: int = 0,
    ) -> PoolReport:
        """Judges pairs and adds them to a set without labels, all in one version or not at all.

        Adding is idempotent: a pair that the set has keeps its label and its scores, and is not
        judged again. `add` labels the pairs later.

        Args:
            name: Name of the calibration set; a missing set is made.
            comparisons: The pairs.
            by: Name of the key that posted the pairs, for the trail.
            unread: Number of posted pairs that could not be parsed, for the trail.

        Raises:
            JudgeMismatchError: The set belongs to another judge; nothing was judged.
            SetFullError: The set has no room for the pairs; nothing was judged.
            JudgmentFailedError: Every pair failed; nothing was added.
            UnavailableError: Nothing was added; or everything was, if the connection to the store
                broke. Posting the pairs again is safe.
        """
        present = await self._present(name)
        known = examples_of(present)
        fingerprint = self._identity.fingerprint
        pairs = await off_loop(digested, comparisons, fingerprint=fingerprint)
        new = {digest: pair for digest, pair in reversed(pairs) if digest not in known}
        _refuse_full(name, len(known) + len(new))
        scores = await self._scores(list(new.values()), "pairs")
        batch = await off_loop(
            JudgedBatch.of_pool,
            pairs,
            dict(zip(new, scores, strict=True)),
            known,
            fingerprint=fingerprint,
            unread=unread,
            runtimes=self._runtimes,
        )
        return PoolReport(batch=batch, outcome=await self.put(name, batch, by=by))

    async def preview(self, name: str, batch: JudgedBatch, *, by: str) -> Preview:
        """Returns what `put` would do now, and changes nothing.

        Raises:
            JudgeMismatchError: The examples or the set belong to another judge.
            StoreUnavailableError: The store does not answer.
        """
        self._refuse_foreign(batch)
        return await self._applied(name, batch, await self._calibrations.current(name), by=by)

    async def put(
        self, name: str, batch: JudgedBatch, *, by: str, check: Check | None = None
    ) -> CalibrationReport:
        """Adds judged examples to a set, all in one version or not at all.

        Args:
            name: Name of the calibration set; a missing set is made.
            batch: The examples.
            by: Name of the key that posted the examples, for the trail.
            check: Looks at the change of each attempt before it is written.

        Returns:
            The outcome, as of `add`.

        Raises:
            JudgeMismatchError: The examples or the set belong to another judge; nothing was added.
            UnavailableError: Nothing was added; or everything was, if the connection to the store
                broke. Putting the batch again is safe.
        """
        self._refuse_foreign(batch)

        async def attempt(head: Head | None) -> CalibrationReport | None:
            # On top of concurrent changes: each attempt begins with the present version.
            current = await self._calibrations.current(name)
            change = await self._applied(name, batch, current, by=by)
            if check is not None:
                await check(change)
            if change.after is change.before:
                return change.report
            written = await self._writer.write(head, current, change.after, change.edit)
            return replace(change, after=written).report if written else None

        return await self._writer.until_written(name, attempt)

    def _refuse_foreign(self, batch: JudgedBatch) -> None:
        if batch.fingerprint != self._identity.fingerprint:
            raise JudgeMismatchError(
                f"the examples were scored by the judge {batch.fingerprint[:12]}, this judge is "
                f"{self._identity.name!r} ({self._identity.fingerprint[:12]}): {INPUTS_DIFFER}. "
                "Post the examples to a service with that judge, or calibrate the labeled pairs "
                "again with this one"
            )

    async def _applied(
        self, name: str, batch: JudgedBatch, current: Calibration | None, *, by: str
    ) -> Preview:
        """Applies a batch to the present version of a set."""
        self._refuse_without_plan(name, current)
        before = current or self._empty(name)
        refuse_other_judge(before, self._identity.fingerprint)
        if before.cascade is not None:
            _refuse_half_scored(batch)
        after, added, removed = await off_loop(batch.applied_to, before)
        _refuse_full(name, after.n)
        edit = batch.edit(by=by, at=self._now(), added=added, removed=removed)
        return Preview(before=before, after=after, edit=edit, failed=batch.errors)

    async def preview_rollback(self, name: str, version: int, *, by: str) -> Preview:
        """Returns what `rollback` would do now, and changes nothing; raises its errors."""
        head = await self._writer.counted(self._store.head(name))
        change = await self._restoring(name, version, head=head, by=by)
        # Like every set that is only looked at, it has the number of the last change.
        number = next_number(head) - 1
        return replace(change, after=replace(change.after, version=number))

    async def rollback(
        self, name: str, version: int, *, by: str = "service", check: Check | None = None
    ) -> Calibration:
        """Restores an earlier version of a set, as a new version.

        A rollback is idempotent: nothing changes if the set already equals that version. A deleted
        set is made again.

        Args:
            name: Name of the calibration set.
            version: Number of the version to restore.
            by: Name of the key that requested the rollback, for the trail.
            check: Looks at the change of each attempt before it is written.

        Returns:
            The set, with exactly the examples of that version.

        Raises:
            CalibrationNotFoundError: There is no such set and never was.
            VersionNotFoundError: There is no such version, or it is not kept any more.
            JudgeMismatchError: That version belongs to another judge.
            StoreUnavailableError: The store does not answer; trying again is safe.
        """

        async def attempt(head: Head | None) -> Calibration | None:
            change = await self._restoring(name, version, head=head, by=by)
            if check is not None:
                await check(change)
            if change.after is change.before:
                return change.after
            return await self._writer.write(head, change.present, change.after, change.edit)

        return await self._writer.until_written(name, attempt)

    async def _restoring(self, name: str, version: int, *, head: Head | None, by: str) -> Preview:
        """Returns the rollback of a set as it is now."""
        if head is None:
            raise _not_found(name)
        now = await self._calibrations.current(name)
        was = await self._earlier(name, version, newest=head.number)
        refuse_other_judge(was, self._identity.fingerprint)
        edit = Edit(action="rollback", by=by, at=self._now(), rolled_back_to=version)
        edit = await off_loop(_counted, edit, now, was)
        changed = edit.added or edit.updated or edit.removed
        if now is not None and not changed and now.fingerprint == was.fingerprint:
            was = now
        return Preview(before=now or self._empty(name), after=was, edit=edit, failed=())

    async def _earlier(self, name: str, version: int, *, newest: int) -> Calibration:
        """Returns an earlier version of a set."""
        blob = await self._writer.counted(self._store.read(name, version))
        if blob is not None:
            least = self._calibrations.min_label_mass
            return await off_loop(decode, name, blob, min_label_mass=least)
        entries = await self._writer.counted(self._store.trail(name, before=version + 1, limit=1))
        if not entries or entries[0].head.number != version:
            raise VersionNotFoundError(
                f"calibration {name!r} has no version {version}: GET /calibrations/{name}/versions "
                "lists the versions"
            )
        if not entries[0].head.write_id:
            raise VersionNotFoundError(
                f"version {version} of calibration {name!r} is its deletion. Name an earlier "
                "version to restore the set"
            )
        raise VersionNotFoundError(
            f"version {version} of calibration {name!r} is not kept any more: a set keeps its last "
            f"{KEPT_VERSIONS} versions, and the newest is {newest}"
        )

    async def delete(self, name: str, *, by: str = "service") -> None:
        """Removes a set and keeps its trail.

        Its last versions are kept, so that a rollback can restore it.

        Args:
            name: Name of the calibration set.
            by: Name of the key that requested the deletion, for the trail.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """

        async def attempt(head: Head | None) -> bool | None:
            before = await self.deletable(name)
            if head is None:
                return None
            removed = None if before is None else before.n
            edit = Edit(action="delete", by=by, at=self._now(), removed=removed)
            return True if await self._writer.delete(head, name, before, edit) else None

        await self._writer.until_written(name, attempt)

    async def deletable(self, name: str) -> Calibration | None:
        """Returns the set that `delete` would remove; None if it cannot be read.

        Raises:
            CalibrationNotFoundError: The set does not exist.
            StoreUnavailableError: The store does not answer.
        """
        try:
            present = await self._calibrations.current(name)
        except StoreCorruptError:
            return None
        if present is None:
            raise _not_found(name)
        return present

    async def versions(self, name: str, *, before: int | None, limit: int) -> list[Change]:
        """Returns the trail of a set, newest change first; a deleted set still has a trail.

        Entries that this version cannot parse are left out, so that they do not hide the others.
        The numbers of the versions show the gap, and the log has a warning.

        Args:
            name: Name of the calibration set.
            before: Only versions below this number; None for all versions.
            limit: Largest number of changes. The answer has fewer only at the beginning of the
                trail.

        Raises:
            CalibrationNotFoundError: There is no such set and never was.
            StoreUnavailableError: The store does not answer.
        """
        page = limit
        while True:
            entries = await self._writer.counted(self._store.trail(name, before=before, limit=page))
            if not entries and await self._writer.counted(self._store.head(name)) is None:
                raise _not_found(name)
            # In a thread: parsing a thousand records takes a tenth of a second.
            changes = await off_loop(_parsed, name, entries)
            # Read more if too many were left out: a client that pages treats an empty page as the
            # end.
            if len(changes) >= limit or len(entries) < page:
                return changes[:limit]
            page *= 2

    def _empty(self, name: str) -> Calibration:
        return Calibration(
            name=name,
            write_id="",
            version=0,
            judge=self._identity.name,
            fingerprint=self._identity.fingerprint,
            examples={},
            min_label_mass=self._calibrations.min_label_mass,
        )


def _refuse_half_scored(batch: JudgedBatch) -> None:
    """Raises CascadeError if examples have no label, or lack the score of one judge."""
    examples = batch.by_digest.values()
    if any(example.label is None for example in examples):
        raise CascadeError("a cascade's set has no pool: post labeled pairs to /calibrate")
    if any(example.score.small is None for example in examples):
        raise CascadeError(
            "a cascade's set needs the scores of both judges for each pair, and some of these have "
            "one: post the labeled pairs to /calibrate, which asks both"
        )


def _parsed(name: str, entries: Sequence[Entry]) -> list[Change]:
    """Parses records; those that this version cannot parse are logged and left out."""
    changes = []
    for entry in entries:
        try:
            changes.append(Change.parse(name, entry.record))
        except StoreCorruptError as exc:
            logger.warning("%s; it is left out", exc.detail)
    return changes


def _counted(rollback: Edit, now: Calibration | None, was: Calibration) -> Edit:
    """Returns the rollback with the numbers of examples that it adds, updates and removes."""
    examples = examples_of(now)
    put, take = was.table.since(examples)
    added = sum(digest not in examples for digest in put)
    return replace(rollback, added=added, updated=len(put) - added, removed=len(take))


def _refuse_full(name: str, pairs: int) -> None:
    if pairs > MOST_PAIRS:
        raise SetFullError(
            f"calibration {name!r} would have {pairs:,} pairs, and a set has at most "
            f"{MOST_PAIRS:,}. Nothing was changed: use another set, or replace the examples "
            '("replace": true)'
        )


def _not_found(name: str) -> CalibrationNotFoundError:
    return CalibrationNotFoundError(f"there is no calibration {name!r}")
