"""Adding labeled batches: counts, versions, and failures of engine and store."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.comparison import MIRRORED, Comparison, Label, LabeledComparison
from app.core.errors import (
    BecomesInfeasibleError,
    CalibrationNotFoundError,
    EngineUnavailableError,
    JudgeMismatchError,
    JudgmentFailedError,
    LabelsDifferError,
    PromptTooLongError,
    RequestError,
    SetFullError,
    StoreUnavailableError,
)
from app.judges.engines.scripted import ScriptedEngine, by_quality, logits_of_gap
from app.ports import Head, LabelLogits, Prompt
from app.sets.change import JudgedBatch
from app.stores.memory import MemoryStore
from app.stores.sqlite import SqliteStore
from tests.serving import ShortEngine, labelled, services_of
from tests.unit.sets.trails import batch, holds, read

MARKER = "xyzzy-secret-text"


async def test_every_example_of_a_batch_is_counted_once() -> None:
    def script(prompt: Prompt) -> LabelLogits | RequestError:
        if "too long" in prompt.user:
            return PromptTooLongError("9 tokens")
        if "nan" in prompt.user:
            return LabelLogits(math.nan, math.nan)
        return by_quality(prompt)

    async with services_of(ScriptedEngine(script)) as services:
        first = await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
        assert (first.added, first.updated, first.ties, first.failed) == (1, 0, 0, ())
        report = await services.calibrator.add(
            "default",
            [
                labelled(1.0, "B", number=1),
                labelled(1.0, "tie", number=2),
                LabeledComparison(comparison=Comparison.of("too long", "a", "b"), label="A"),
                labelled(1.0, "A", number=3),
                LabeledComparison(comparison=Comparison.of("nan", "a", "b"), label="A"),
                labelled(1.0, "A", number=4),
            ],
        )
        assert (report.added, report.updated, report.ties) == (2, 1, 1)
        assert [(i, type(error)) for i, error in report.failed] == [
            (2, PromptTooLongError),
            (4, JudgmentFailedError),
        ]
        assert (report.calibration.version, report.calibration.n) == (2, 4)
        assert (report.before.n, report.calibration.labelled, report.calibration.ties) == (1, 3, 1)
        assert report.calibration.accuracy == pytest.approx(2 / 3)


async def test_a_swapped_duplicate_is_an_update() -> None:
    async with services_of() as services:
        example = labelled(1.0, "A", number=1)
        await services.calibrator.add("default", [example])
        swapped = LabeledComparison(comparison=example.comparison.swapped, label="B")
        report = await services.calibrator.add("default", [swapped])
        assert (report.added, report.updated, report.calibration.n) == (0, 1, 1)
        # The label B of the swapped pair agrees with the judge.
        assert report.calibration.accuracy == 1.0


async def test_a_pair_that_comes_again_without_its_question_keeps_it() -> None:
    async with services_of() as services:
        first = await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
        ((digest, known),) = first.calibration.examples.items()
        again = (digest, replace(known, question=None, label="B"))
        batch = JudgedBatch(examples=[again], fingerprint=services.identity.fingerprint)
        done = await services.calibrator.put("default", batch, by="ana")
        assert done.calibration.examples[digest] == replace(known, label="B")


async def test_posting_a_batch_again_writes_nothing() -> None:
    async with services_of() as services:
        posted = [labelled(0.1 * i, "A" if i % 3 else "B", number=i) for i in range(1, 20)]
        once = (await services.calibrator.add("default", posted)).calibration
        again = await services.calibrator.add("default", posted)
        assert (again.added, again.updated) == (0, 19)
        assert again.calibration == once
        assert len(await services.store.trail("default", before=None, limit=9)) == 1
        mixed = [*posted[1:], labelled(0.1, "B", number=1)]
        changed = await services.calibrator.add("default", mixed)
        assert (changed.added, changed.updated, changed.calibration.version) == (0, 19, 2)
        assert changed.calibration.n == once.n


async def test_a_batch_that_changes_nothing_makes_no_set() -> None:
    async with services_of() as services:
        report = await services.calibrator.add("default", [])
        assert (report.calibration.version, report.calibration.n) == (0, 0)
        assert (report.added, report.ties) == (0, 0)
        assert report.calibration.accuracy is None
        assert await services.store.names() == []


async def test_a_tie_keeps_its_score_and_counts_for_no_threshold() -> None:
    async with services_of() as services:
        add = services.calibrator.add
        sided = [labelled(0.1 * i, "A", number=i) for i in range(1, 41)]
        before = (await add("sided", sided)).calibration
        await add("default", [*sided, labelled(2.0, "B", number=99)])
        tie = [labelled(2.0, "tie", number=99), labelled(0.0, "tie", number=100)]
        report = await add("default", tie)
        assert (report.ties, report.removed, report.updated) == (2, 0, 0)
        after = report.calibration
        assert (after.version, after.n, after.labelled, after.ties) == (2, 42, 40, 2)
        rows = [replace(row, tie_share=None, tie_interval=None) for row in after.standard_rows]
        assert rows == [
            replace(row, tie_share=None, tie_interval=None) for row in before.standard_rows
        ]
        assert (after.accuracy, after.auroc) == (before.accuracy, before.auroc)
        # Two more scores to compare the traffic with.
        assert len(after.uncertainty) == len(before.uncertainty) + 2
        again = await add("default", tie)
        assert (again.removed, again.calibration.version) == (0, 2)
        back = await add("default", [labelled(2.0, "B", number=99)])
        assert (back.added, back.calibration.labelled, back.calibration.ties) == (0, 41, 1)


@pytest.mark.parametrize("posted", [["B"], ["tie"], ["A", "B"], ["A", "tie", "A"]])
@pytest.mark.parametrize("turned", [False, True])
async def test_the_last_label_counts_unless_the_caller_refuses_another_one(
    posted: list[Label], turned: bool
) -> None:
    async with services_of() as services:
        add = services.calibrator.add
        before = (await add("default", [labelled(1.0, "A", number=1)])).calibration
        pairs = [labelled(1.0, label, number=1) for label in posted]
        if turned:
            pairs = [
                LabeledComparison(comparison=pair.comparison.swapped, label=MIRRORED[pair.label])
                for pair in pairs
            ]
        with pytest.raises(LabelsDifferError, match="1 of these pairs have another label"):
            await add("default", [*pairs, labelled(1.0, "A", number=2)], change_labels=False)
        assert await services.calibrations.get("default") == before
        change = await add("default", pairs)
        assert len(change.changed_labels) == 1
        # The last label counts.
        (example,) = change.calibration.examples.values()
        is_kept_turned = labelled(1.0, "A", number=1).comparison.is_reversed
        assert example.label == (MIRRORED[posted[-1]] if is_kept_turned else posted[-1])


async def test_another_judges_set_is_refused_before_anything_is_judged() -> None:
    store = MemoryStore()
    asked: list[Prompt] = []

    def script(prompt: Prompt) -> LabelLogits:
        asked.append(prompt)
        return by_quality(prompt)

    async with (
        services_of(ScriptedEngine(judge="one"), store) as one,
        services_of(ScriptedEngine(script, judge="two"), store) as two,
    ):
        await one.calibrator.add("default", [labelled(1.0, "A", number=1)])
        before = await store.read("default")
        with pytest.raises(JudgeMismatchError, match="'one'"):
            await two.calibrator.add("default", [labelled(1.0, "A", number=2)])
        with pytest.raises(JudgeMismatchError):
            await two.calibrations.usable("default", fingerprint=two.identity.fingerprint)
        assert await store.read("default") == before
    assert asked == []


async def test_an_engine_that_fails_leaves_nothing_written() -> None:
    def script(prompt: Prompt) -> LabelLogits:
        raise EngineUnavailableError("down")

    for engine in (ScriptedEngine(script), ShortEngine()):
        async with services_of(engine) as services:
            with pytest.raises((EngineUnavailableError, JudgmentFailedError)):
                await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
            assert await services.store.names() == []


async def test_a_full_set_takes_no_further_pair_and_judges_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.sets.calibrator.MOST_PAIRS", 3)
    asked: list[Prompt] = []

    def script(prompt: Prompt) -> LabelLogits:
        asked.append(prompt)
        return by_quality(prompt)

    async with services_of(ScriptedEngine(script)) as services:
        calibrator = services.calibrator
        # A pair that comes twice needs one place.
        before = (await calibrator.add("default", batch(1, 2, 2, 3))).calibration
        judged = len(asked)
        for full in (
            calibrator.add("default", batch(3, 4)),
            calibrator.pool("default", [batch(4)[0].comparison]),
        ):
            with pytest.raises(SetFullError, match="would have 4 pairs"):
                await full
        assert len(asked) == judged
        assert await services.calibrations.get("default") is before
        # Known pairs, those that replace others, and scores alone need no place.
        assert (await calibrator.add("default", batch(1, 2, 3))).updated == 3
        assert (await calibrator.judged("default", batch(4), replaces=True)).errors == ()
        scored = await calibrator.judged("default", batch(4), adds=False)
        assert scored.errors == ()
        # Scores that are put behind the last place are refused, too.
        with pytest.raises(SetFullError, match="would have 4 pairs"):
            await calibrator.put("default", scored, by="ana")


async def test_pairs_are_refused_if_the_set_gets_verdicts_while_they_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with services_of() as services:
        calibrator, look = services.calibrator, services.changes.look_at_pool
        judge = calibrator._scores

        async def slow(*given: Any) -> Any:
            monkeypatch.undo()
            await calibrator.add("default", batch(*range(1, 41)))
            return await judge(*given)

        monkeypatch.setattr(calibrator, "_scores", slow)
        with pytest.raises(BecomesInfeasibleError):
            await calibrator.pool("default", [batch(50)[0].comparison], look=look)
        assert (await services.calibrations.get("default")).unlabelled == 0


class Failing(MemoryStore):
    """The method named in `method` does not answer."""

    method = ""

    async def _asked(self, method: str) -> None:
        if method == self.method:
            raise StoreUnavailableError("gone")

    async def head(self, name: str) -> Head | None:
        await self._asked("head")
        return await super().head(name)

    async def write(self, *args: Any, **kwargs: Any) -> bool:
        await self._asked("write")
        return await super().write(*args, **kwargs)


async def test_judging_continues_after_a_deletion_that_the_store_refused() -> None:
    store = Failing()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", [labelled(1.0, "A", number=1)])
        store.method = "write"
        with pytest.raises(StoreUnavailableError):
            await services.calibrator.delete("default")
        store.method = "head"
        fingerprint = services.identity.fingerprint
        usable, _ = await services.calibrations.usable("default", fingerprint=fingerprint)
        assert usable.version == 1
        store.method = ""
        await services.calibrator.delete("default")
        with pytest.raises(CalibrationNotFoundError):
            await services.calibrations.usable("default", fingerprint=fingerprint)


async def test_texts_are_never_stored(tmp_path: Path) -> None:
    path = tmp_path / "sets.db"
    store = SqliteStore(path)
    async with services_of(ScriptedEngine(lambda prompt: logits_of_gap(1.0)), store) as services:
        comparison = Comparison.of(f"{MARKER} q", f"{MARKER} a", f"{MARKER} b")
        await services.calibrator.add(
            "default", [LabeledComparison(comparison=comparison, label="A")]
        )
        assert MARKER not in repr(await read(store))
    await store.close()
    assert not holds(tmp_path, MARKER)
    assert holds(tmp_path, services.identity.fingerprint)


async def test_a_write_to_a_restored_store_uses_its_content_and_not_the_cache(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / "sets.db", tmp_path / "backup.db"
    store = SqliteStore(path)
    async with services_of(store=store) as here, services_of(store=store) as elsewhere:
        await here.calibrator.add("default", [labelled(1.0, "A", number=1)])
        await store.close()
        shutil.copy(path, backup)
        await store.open()
        await here.calibrator.add("default", [labelled(1.0, "A", number=2)])

        # The store returns to version 1, as after a restore or a failover. Another replica makes
        # another version 2 before this replica reads the store again.
        await store.close()
        shutil.copy(backup, path)
        await store.open()
        others = [labelled(1.0, "A", number=3), labelled(1.0, "A", number=5)]
        await elsewhere.calibrator.add("default", others)

        report = await here.calibrator.add("default", [labelled(1.0, "A", number=4)])
        stored = await read(store)
        # Examples 1, 3, 5 and 4; the lost example 2 counts nowhere.
        assert report.calibration.n == len(stored.examples) == 4
        assert report.calibration.examples.keys() == stored.examples.keys()
    await store.close()
