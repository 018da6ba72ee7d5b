"""The first start of a new release calibrates an upgraded bundled judge again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.errors import JudgeMismatchError
from app.judges.engines.scripted import ScriptedEngine
from app.judging.services import Services
from app.sets.bundled import labeled_comparisons
from app.sets.cache import DEFAULT_CALIBRATION
from app.settings import Settings
from app.stores.sqlite import SqliteStore
from app.wiring.engines import DEMO_FOLDER
from app.wiring.startup import prepare_default
from tests.serving import labelled, pair, request, services_of


class StageRecorder:
    """An observer that records the stages of a start."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def note(self, text: str) -> None:
        self.stages.append(text)

    def warning(self, text: str) -> None:
        raise AssertionError(text)

    def calibrated(self, done: int, total: int) -> None:
        assert done <= total


@asynccontextmanager
async def release(
    path: Path, fence: int, monkeypatch: pytest.MonkeyPatch, *, judge: str = "demo"
) -> AsyncIterator[Services]:
    """Services of a release whose judge has its own fingerprint."""
    monkeypatch.setattr("app.judges.label_logits.FENCE_VERSION", fence)
    store = SqliteStore(path)
    try:
        async with services_of(ScriptedEngine(judge=judge), store) as services:
            yield services
    finally:
        await store.close()


async def started(services: Services, store_url: str, *, escalate_url: str = "") -> list[str]:
    """Starts the services as `make serve` does, and returns the stages of the start."""
    recorder = StageRecorder()
    settings = Settings(engine="vllm", model="demo", store_url=store_url, escalate_url=escalate_url)
    await prepare_default(services, settings, recorder)
    return recorder.stages


async def default_version(services: Services) -> int:
    known = await services.calibrations.current(DEFAULT_CALIBRATION)
    assert known is not None
    return known.version


async def test_an_upgraded_demo_judge_is_calibrated_again_and_the_trail_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = tmp_path / "set.db", f"sqlite:///{tmp_path}/set.db"
    async with release(path, 1, monkeypatch) as old:
        # A cascade has no labels before its plan.
        assert await started(old, url, escalate_url="http://large") == []
        assert await started(old, url) == ["Calibrating with 600 labeled pairs"]
        assert await started(old, url) == []
    for fence, version in ((2, 3), (3, 5)):
        async with release(path, fence, monkeypatch) as new:
            with pytest.raises(JudgeMismatchError):
                await new.judge.judge(request(pair(3, 0)))
            assert await started(new, url) == [
                "Deleting the default calibration, made by an earlier release of this judge",
                "Calibrating with 600 labeled pairs",
            ]
            assert await default_version(new) == version
            await new.judge.judge(request(pair(3, 0)))
            trail = await new.calibrator.versions(DEFAULT_CALIBRATION, before=None, limit=9)
            actions = ["calibrate", "delete"] * (version // 2) + ["calibrate"]
            assert [change.action for change in trail] == actions
            assert await started(new, url) == []


@pytest.mark.parametrize("case", ["added", "others", "key", "judge", "rolled back"])
async def test_a_set_with_anything_else_in_it_is_left_alone(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = tmp_path / "set.db", f"sqlite:///{tmp_path}/set.db"
    async with release(path, 1, monkeypatch) as old:
        calibrator, few = old.calibrator, [labelled(1.0, "A", number=i) for i in range(9)]
        if case not in ("others", "key"):
            await started(old, url)
        if case == "others":
            await calibrator.add(DEFAULT_CALIBRATION, few)
        elif case == "key":
            shipped = labeled_comparisons(DEMO_FOLDER / "calibrate.jsonl")
            await calibrator.add(DEFAULT_CALIBRATION, shipped, by="anonymous")
        elif case in ("added", "rolled back"):
            await calibrator.add(DEFAULT_CALIBRATION, few)
        if case == "rolled back":
            await calibrator.rollback(DEFAULT_CALIBRATION, 1)
        before = await default_version(old)
    name = "another" if case == "judge" else "demo"
    async with release(path, 2, monkeypatch, judge=name) as new:
        assert await started(new, url) == []
        assert await default_version(new) == before


async def test_a_set_that_other_replicas_may_use_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.db"
    async with release(path, 1, monkeypatch) as old:
        await started(old, f"sqlite:///{path}")
    async with release(path, 2, monkeypatch) as new:
        assert await started(new, "redis://somewhere") == []
        assert await default_version(new) == 1


async def test_a_default_set_that_somebody_deleted_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = tmp_path / "set.db", f"sqlite:///{tmp_path}/set.db"
    async with release(path, 1, monkeypatch) as services:
        await started(services, url)
        await services.calibrator.delete(DEFAULT_CALIBRATION, by="anonymous")
        assert await started(services, url) == [
            "The default calibration was deleted, and stays deleted"
        ]
        assert await services.calibrations.current(DEFAULT_CALIBRATION) is None
