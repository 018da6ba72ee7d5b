"""Changes calibration sets: adds labeled batches, restores versions, deletes sets.

Every change becomes an entry of the set's trail, and a line of the log. The last versions of a set
can be restored.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.core.calibration import Calibration
from app.core.cascade import CascadePlan
from app.core.comparison import Comparison, LabeledComparison
from app.core.errors import (
    CalibrationNotFoundError,
    CascadeError,
    InvalidRequestError,
    JudgeMismatchError,
    JudgmentFailedError,
    LabelsDifferError,
    SetFullError,
    StoreCorruptError,
    StoreUnavailableError,
    VersionNotFoundError,
)
from app.core.examples import MOST_PAIRS
from app.core.fingerprint import INPUTS_DIFFER, example_digest
from app.core.preference import Score
from app.flow import off_loop
from app.judges.cascade import CascadeScorer
from app.judges.scorer import ScoreOutcome, Scorer
from app.ports import KEPT_VERSIONS, Head, SetStore
from app.release import RELEASE
from app.sets.cache import Calibrations, refuse_other_judge
from app.sets.change import (
    Change,
    JudgedBatch,
    SetChange,
    judged_examples,
    readable_changes,
)
from app.sets.codec import decode, encode, stored_thresholds

# Each conflict means that another writer succeeded, so somebody always makes progress. Fifty in a
# row mean dozens of writers on one set.
_ATTEMPTS = 50
# The pause after a conflict is random, so that writers do not collide again.
_LONGEST_PAUSE_S = 0.05

# The score of a pair about which the judge knows nothing.
_UNCERTAIN = Score(gap_fwd=0.0, gap_rev=0.0, label_mass=1.0)
# The log is a second trail outside the store; it contains no texts.
logger = logging.getLogger("app.calibrations")

# Looks at a change before it is written, and notes what it does; raises an error to refuse it.
Look = Callable[[SetChange], Awaitable[SetChange]]


class Calibrator:
    """Changes calibration sets and lists their trails.

    A missing set is made. A change is made in one version or not at all. Each method raises
    StoreUnavailableError if the store does not answer; trying again is safe.

    Args:
        scorer: Scores labeled comparisons. Only sets of its judge can be changed.
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
        self._store = store
        self._calibrations = calibrations
        self._now = now

    async def add(
        self,
        name: str,
        examples: Sequence[LabeledComparison],
        *,
        by: str = "service",
        change_labels: bool = True,
    ) -> SetChange:
        """Judges a labeled batch and adds it to a set; raises the errors of `judged` and `put`.

        Adding is idempotent. A comparison that the set already has, or that the batch repeats, adds
        no example; its last label counts, or with `change_labels=False` it has to be the same.
        A tie keeps its score, which counts for drift and not for the error.

        Returns:
            The change. A batch that changes nothing makes no version. If the set does not exist
            then, its version is 0.
        """
        batch = await self.judged(name, examples, change_labels=change_labels)
        return await self.put(name, batch, by=by)

    async def judged(
        self,
        name: str,
        examples: Sequence[LabeledComparison],
        *,
        replaces: bool = False,
        change_labels: bool = True,
        adds: bool = True,
    ) -> JudgedBatch:
        """Judges a labeled batch for a set, and changes nothing.

        The arguments are those of `add`. With `replaces`, the batch is to remove all other examples
        of the set, and with `change_labels`, its labels count for pairs that have another one.
        Without `adds`, nothing is to be done with it.

        Raises:
            JudgeMismatchError: The set belongs to another judge; nothing was judged.
            SetFullError: The set has no room for the batch; nothing was judged.
            JudgmentFailedError: Every example failed.
        """
        present = await self._calibrations.current(name)
        if present is not None:
            refuse_other_judge(present, self._identity.fingerprint)
        self._refuse_without_plan(name, present)
        comparisons = [example.comparison for example in examples]
        labels = [example.label for example in examples]
        digests = await off_loop(self._digests, comparisons)
        if adds and present is not None and not replaces:
            _refuse_full(name, len(present.examples) + len(set(digests) - present.examples.keys()))
        scores = await self._scores(comparisons, "examples")
        return JudgedBatch(
            examples=await off_loop(judged_examples, digests, comparisons, labels, scores),
            fingerprint=self._identity.fingerprint,
            replaces=replaces,
            change_labels=change_labels,
        )

    def _digests(self, comparisons: Sequence[Comparison]) -> list[str]:
        """The digest of each comparison; long work for large texts."""
        return [example_digest(self._identity.fingerprint, pair) for pair in comparisons]

    def _refuse_without_plan(self, name: str, present: Calibration | None) -> None:
        if isinstance(self._scorer, CascadeScorer) and present is None:
            raise CascadeError(
                f"calibration {name!r} has no plan yet, which a cascade needs before its first "
                "label: run `scope-judge cascade plan` on pairs without labels"
            )

    async def plan(self, name: str, plan: CascadePlan, *, by: str) -> Calibration:
        """Makes the first version of a cascade's set, without examples; a plan never changes."""

        async def plan_set(head: Head | None) -> SetChange:
            if await self._calibrations.current(name) is not None:
                raise CascadeError(
                    f"there is a calibration {name!r}, and its plan was fixed before its first "
                    "label: use another name, or delete the calibration first"
                )
            empty = self._empty(name)
            after = replace(empty, cascade=plan)
            return SetChange(action="plan", by=by, at=self._now(), before=empty, after=after)

        return (await self._make(name, plan_set)).calibration

    async def scores(self, comparisons: Sequence[Comparison]) -> list[ScoreOutcome]:
        """Scores comparisons for no set; raises UnavailableError if the judge does not answer."""
        return list(await self._scorer.score(comparisons))

    async def _scores(self, comparisons: Sequence[Comparison], kind: str) -> Sequence[ScoreOutcome]:
        """Scores comparisons; a failure of all is an error, because clients may read no more."""
        scores = await self._scorer.score(comparisons) if comparisons else ()
        if scores and all(isinstance(score, JudgmentFailedError) for score in scores):
            raise JudgmentFailedError(f"the judge failed on all {len(scores)} {kind}")
        return scores

    async def pool(
        self,
        name: str,
        comparisons: Sequence[Comparison],
        *,
        least: int = 0,
        look: Look | None = None,
        by: str = "service",
    ) -> tuple[JudgedBatch, SetChange]:
        """Judges pairs and adds them to a set without labels.

        Adding is idempotent: a pair that the set has keeps its label and its scores, and is not
        judged again. `add` labels the pairs later.

        Args:
            least: Fewest pairs of a new set.
            look: Looks at the change of each attempt before it is written, and at the change by
                the least certain scores before the pairs are judged.

        Raises:
            InvalidRequestError: The set would be new and too small; nothing was judged.
            ScopeJudgeError: As of `judged`.
        """
        present = await self._calibrations.current(name)
        known = {} if present is None else present.examples
        digests = await off_loop(self._digests, comparisons)
        new = dict[str, Comparison]()
        for digest, pair in zip(digests, comparisons, strict=True):
            if digest not in known:
                new.setdefault(digest, pair)
        if not known and len(new) < least:
            raise InvalidRequestError(
                f"comparisons: the first test at this alpha needs {least} pairs, and there are "
                f"{len(new)}: post all pairs of the pool together, or choose a larger alpha"
            )

        async def put(
            scores: Mapping[str, ScoreOutcome], *, dry_run: bool
        ) -> tuple[JudgedBatch, SetChange]:
            known_too = [scores.get(digest) or known[digest].score for digest in digests]
            batch = JudgedBatch(
                examples=await off_loop(
                    judged_examples, digests, comparisons, [None] * len(digests), known_too
                ),
                fingerprint=self._identity.fingerprint,
                action="pool",
            )
            return batch, await self.put(name, batch, by=by, look=look, dry_run=dry_run)

        if new:
            # A change that is refused whatever the scores are costs no judging.
            await put(dict.fromkeys(new, _UNCERTAIN), dry_run=True)
        scores = await self._scores(list(new.values()), "pairs")
        return await put(dict(zip(new, scores, strict=True)), dry_run=False)

    async def put(
        self,
        name: str,
        batch: JudgedBatch,
        *,
        by: str,
        look: Look | None = None,
        dry_run: bool = False,
    ) -> SetChange:
        """Adds judged examples to a set.

        Args:
            look: Looks at the change of each attempt before it is written.

        Raises:
            LabelsDifferError: A pair has another label than before, and the batch changes none.
            ScopeJudgeError: As of `judged`.
        """
        self._refuse_foreign(batch)

        async def apply(head: Head | None) -> SetChange:
            # On top of concurrent changes: each attempt begins with the present version.
            current = await self._calibrations.current(name)
            self._refuse_without_plan(name, current)
            before = current or self._empty(name)
            refuse_other_judge(before, self._identity.fingerprint)
            if before.cascade is not None:
                _refuse_half_scored(batch)
            change = await off_loop(batch.applied_to, before, by=by, at=self._now())
            _refuse_full(name, change.calibration.n)
            if not (dry_run or batch.change_labels):
                _refuse_changed_labels(name, change)
            return change

        return await self._make(name, apply, look=look, dry_run=dry_run)

    def _refuse_foreign(self, batch: JudgedBatch) -> None:
        if batch.fingerprint != self._identity.fingerprint:
            raise JudgeMismatchError(
                f"the examples were scored by the judge {batch.fingerprint[:12]}, this judge is "
                f"{self._identity.name!r} ({self._identity.fingerprint[:12]}): {INPUTS_DIFFER}. "
                "Post the examples to a service with that judge, or calibrate the labeled pairs "
                "again with this one"
            )

    async def rollback(
        self,
        name: str,
        version: int,
        *,
        by: str = "service",
        look: Look | None = None,
        dry_run: bool = False,
    ) -> SetChange:
        """Restores an earlier version of a set, as a new version.

        A rollback is idempotent: nothing changes if the set already equals that version. A deleted
        set is made again.
        """

        async def restore(head: Head | None) -> SetChange:
            if head is None:
                raise CalibrationNotFoundError(name)
            now = await self._calibrations.current(name)
            was = await self._earlier(name, version, newest=head.number)
            refuse_other_judge(was, self._identity.fingerprint)
            # Like every set that is only looked at, it has the number of the last change.
            was = replace(was, version=head.number)
            change = SetChange(
                action="rollback",
                by=by,
                at=self._now(),
                before=now or self._empty(name),
                after=was,
                rolled_back_to=version,
            )
            change = await off_loop(_counted, change)
            if change.added or change.updated or change.removed or now is None:
                return change
            return replace(change, after=now) if now.fingerprint == was.fingerprint else change

        return await self._make(name, restore, look=look, dry_run=dry_run)

    async def _earlier(self, name: str, version: int, *, newest: int) -> Calibration:
        """Returns an earlier version of a set."""
        blob = await self._store.read(name, version)
        if blob is not None:
            least = self._calibrations.min_label_mass
            return await off_loop(decode, name, blob, min_label_mass=least)
        raise VersionNotFoundError(
            f"calibration {name!r} has no version {version} to restore: a set keeps its last "
            f"{KEPT_VERSIONS} versions (the newest is {newest}), and a deletion is none. GET "
            f"/calibrations/{name}/versions lists the versions"
        )

    async def delete(self, name: str, *, by: str = "service") -> None:
        """Removes a set; its trail and its last versions stay, so that a rollback restores it."""

        async def remove(head: Head | None) -> SetChange:
            present = await self.deletable(name)
            return SetChange(
                action="delete",
                by=by,
                at=self._now(),
                before=present or self._empty(name),
                after=None,
                removed=None if present is None else present.n,
            )

        await self._make(name, remove)

    async def deletable(self, name: str) -> Calibration | None:
        """Returns the set that `delete` would remove; None if it cannot be read."""
        try:
            present = await self._calibrations.current(name)
        except StoreCorruptError:
            return None
        if present is None:
            raise CalibrationNotFoundError(name)
        return present

    async def versions(self, name: str, *, before: int | None, limit: int) -> list[Change]:
        """Returns the readable changes of a set, newest first; a deleted set still has a trail.

        Args:
            before: Only versions below this number; None for all versions.
        """
        entries = await self._store.trail(name, before=before, limit=limit)
        if not entries and await self._store.head(name) is None:
            raise CalibrationNotFoundError(name)
        # In a thread: parsing a thousand records takes a tenth of a second.
        return await off_loop(readable_changes, name, entries)

    async def _make(
        self,
        name: str,
        plan: Callable[[Head | None], Awaitable[SetChange]],
        *,
        look: Look | None = None,
        dry_run: bool = False,
    ) -> SetChange:
        """Makes a change, and repeats it until no concurrent change conflicts with it.

        Args:
            plan: Reads the set, and returns the change on top of the given head, which is None if
                there never was a set.
        """
        for _ in range(_ATTEMPTS):
            # The head before the set: a change made after this line has another one, so that our
            # attempt is refused.
            head = await self._store.head(name)
            change = await plan(head)
            if look is not None:
                change = await look(change)
            if dry_run or change.after is change.before:
                return change
            made = await self._write(name, head, change)
            if made is not None:
                return made
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))
        raise StoreUnavailableError(
            f"too many other writers change calibration {name!r}; nothing was changed. Try again",
            retry_after_s=1,
        )

    async def _write(self, name: str, head: Head | None, change: SetChange) -> SetChange | None:
        """Writes a change on top of a head; returns None if a concurrent change conflicted."""
        number = head.number + 1 if head else 1
        if change.after is not None:
            after = replace(
                change.after,
                write_id=uuid.uuid4().hex,
                version=number,
                changed_at=change.at.timestamp(),
                release=RELEASE,
            )
            change = replace(change, after=after)
        blob, entry = await off_loop(_encoded, number, change)
        what = (name, number, change.action, change.by)
        try:
            written = await self._store.write(
                name,
                Head(entry.write_id or "", number),
                blob=blob,
                thresholds=stored_thresholds(entry.thresholds_after or {}),
                record=entry.record,
                expected=head,
            )
        except (StoreUnavailableError, asyncio.CancelledError):
            # If the connection breaks here, the set may or may not be deleted. It stays cached: the
            # next answer of the store decides, and SCOPE_MAX_STALENESS_S bounds its use.
            logger.warning(
                "calibration %s: version %d (%s by %r) may have been written or not", *what
            )
            raise
        if not written:
            return None
        if change.after is None:
            self._calibrations.forget(name)
        else:
            self._calibrations.remember(change.after)
        logger.info(
            "calibration %s: version %d (%s by %r), added %d, updated %d, ties %d, removed %s, "
            "failed %d, n %d, rolled back to %s",
            *what,
            entry.added,
            entry.updated,
            entry.ties,
            entry.removed,
            entry.failed,
            entry.n,
            entry.rolled_back_to,
        )
        return change

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


def _encoded(number: int, change: SetChange) -> tuple[bytes | None, Change]:
    """The bytes and the entry of a change; long work for a large set."""
    blob = None if change.after is None else encode(change.after)
    return blob, Change.of(number, change)


def _counted(rollback: SetChange) -> SetChange:
    """Returns the rollback with the numbers of examples that it adds, updates and removes."""
    before, after = rollback.before.table, rollback.calibration.table
    known = sum(digest in before for digest in after)
    changed = sum(before.get(digest) not in (None, example) for digest, example in after.items())
    return replace(rollback, added=len(after) - known, updated=changed, removed=len(before) - known)


def _refuse_changed_labels(name: str, change: SetChange) -> None:
    changed = change.changed_labels
    if changed:
        raise LabelsDifferError(
            f"{len(changed)} of these pairs have another label in calibration {name!r}, or two in "
            f"the batch, such as that of the digest {changed[0][:12]}. Nothing was changed: "
            'correct them, or leave out "change_labels": false to let the new labels count'
        )


def _refuse_full(name: str, pairs: int) -> None:
    if pairs > MOST_PAIRS:
        raise SetFullError(
            f"calibration {name!r} would have {pairs:,} pairs, and a set has at most "
            f"{MOST_PAIRS:,}. Nothing was changed: use another set, or replace the examples "
            '("replace": true)'
        )
