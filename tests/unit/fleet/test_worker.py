"""The worker of a bulk run: rows judged as a batch, retries, refusals and lost parts."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.comparison import CriterionDefaults
from app.core.errors import (
    EngineUnavailableError,
    InvalidRequestError,
    StartupError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.engines.scripted import ScriptedEngine
from app.fleet.job import Job, judges_on
from app.fleet.output import Output
from app.fleet.parts import Part, PartRow, cut
from app.fleet.passes import judged_parts
from app.fleet.sources import InputFile, sources_of
from app.fleet.worker import PartOutcome, PartWorker, judge_rows
from app.ports import (
    CallTimes,
    EngineIdentity,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Version,
    no_stage,
)
from app.service.judging.judge import JudgeRequest
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.wire.requests import JudgeBatchIn
from tests.patience import PATIENCE_S, until
from tests.serving import client_of, labelled, services_of

CRITERION = {"alpha": None, "guarantee": "marginal", "delta": None, "calibration": "default"}


def items() -> list[Any]:
    good = {"question": "q", "response_a": "quality=2", "response_b": "quality=1", "id": "good"}
    return [
        good,
        {**good, "response_a": " ", "id": 2},
        {**good, "alpha": 0.1},
        {**good, "alpha": 2.0},
        [],
        {**good, "response_a": "quality=0"},
    ]


async def test_rows_are_judged_as_a_batch_is() -> None:
    rows = [PartRow(place=i, value=value) for i, value in enumerate(items())]
    async with services_of() as services:
        results = await judge_rows(services, rows, CRITERION)
    async with client_of() as client:
        answer = await client.post("/judge/batch", json={"alpha": None, "comparisons": items()})
    assert results == answer.json()["results"]
    assert sum("error" in result for result in results) == 4


async def test_a_line_that_is_not_json_is_an_error_row() -> None:
    rows = [
        PartRow(place=0, value={"id": 1}, error=InvalidRequestError("this line is no JSON")),
        PartRow(place=1, value=items()[0]),
    ]
    async with services_of() as services:
        broken, judged = await judge_rows(services, rows, CRITERION)
    assert broken["error"]["code"] == "invalid_request"
    assert judged["verdict"] == "A"


MET = {**CRITERION, "alpha": 0.1}
EXAMPLES = [labelled(2.0, "A", number=number) for number in range(30)]


async def test_without_the_calibration_of_the_job_nothing_is_judged() -> None:
    async with services_of() as services:
        with pytest.raises(StartupError, match="no calibration"):
            await judge_rows(services, [PartRow(place=0, value=items()[0])], MET)


async def test_another_judges_calibration_is_refused() -> None:
    store = MemoryStore()
    async with services_of(ScriptedEngine(judge="another"), store) as services:
        await services.calibrator.add("default", EXAMPLES)
    async with services_of(store=store) as services:
        with pytest.raises(StartupError, match="judge"):
            await judge_rows(services, [PartRow(place=0, value=items()[0])], MET)


async def test_a_row_that_names_its_own_calibration_has_its_own_error() -> None:
    rows = [
        PartRow(place=0, value={**items()[0], "calibration": "missing"}),
        PartRow(place=1, value=items()[0]),
    ]
    async with services_of() as services:
        await services.calibrator.add("default", EXAMPLES)
        other, judged = await judge_rows(services, rows, MET)
    assert other["error"]["code"] == "calibration_not_found"
    assert judged["calibration"]["name"] == "default"


async def test_a_bulk_run_draws_audits() -> None:
    async with services_of(audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        rows = [
            PartRow(place=i, value={**items()[0], "question": f"PartRow {i}?"}) for i in range(20)
        ]
        results = await judge_rows(services, rows, MET)
        drawn = [audit.draw.id for audit in services.auditor.ledger.audits("default")]
    assert [result["audit"]["id"] for result in results] == drawn


class Troubled(MemoryStore):
    """A store that raises `error` for every set once it is set."""

    error: Exception | None = None

    async def version(self, name: str) -> Version | None:
        if self.error is not None:
            raise self.error
        return await super().version(name)


async def test_a_calibration_that_cannot_be_read_is_no_result() -> None:
    store = Troubled()
    async with services_of(store=store) as services:
        store.error = StoreCorruptError("this is no calibration")
        with pytest.raises(StoreCorruptError):
            await judge_rows(services, [PartRow(place=0, value=items()[0])], MET)


async def test_thresholds_that_the_store_does_not_confirm_give_no_results() -> None:
    store = Troubled()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judge_rows(services, [PartRow(place=0, value=items()[0])], MET)
        store.error = StoreUnavailableError("nobody is there")

        async def judge_on() -> None:
            # Thresholds of half a second ago still count as confirmed.
            while True:
                await judge_rows(services, [PartRow(place=0, value=items()[0])], MET)
                await asyncio.sleep(0.02)

        with pytest.raises(StoreUnavailableError, match="does not confirm"):
            await asyncio.wait_for(judge_on(), PATIENCE_S)


class Scene:
    """A job of two parts with four rows each, and its folder."""

    def __init__(self, folder: Path, *, alpha: float | None = None, **settings: Any) -> None:
        file = folder / "a.jsonl"
        file.write_text("".join(json.dumps(item) + "\n" for item in items()[:1] * 8))
        self.parts = cut(sources_of([file], folder / "input"), rows_per_part=4).parts
        given = {"engine": "scripted", "store_url": "memory://", **settings}
        self.job = Job.of(Settings(**given), {"alpha": alpha}, folder / "out")
        self.output = Output(self.job.out)
        self.output.begin({})


def judged(scene: Scene) -> PartOutcome:
    worker = PartWorker(scene.job, pause_s=0)
    try:
        return worker.judge(1, scene.parts[1])
    finally:
        worker.close()


def test_a_part_is_judged_into_its_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert judged(scene) == PartOutcome(part=1, kind="done", results=4)
    lines = [json.loads(line) for line in scene.output.results_of(1).read_text().splitlines()]
    assert [line["input"] for line in lines] == [
        {"shard": "a.jsonl", "row": row} for row in range(4, 8)
    ]
    assert [line["verdict"] for line in lines] == ["A"] * 4


def test_a_part_that_is_done_is_not_judged_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.output.write_part(1, [{"verdict": "B"}])
    assert judged(scene) == PartOutcome(part=1, kind="done", results=1)
    assert scene.output.results_of(1).read_text() == '{"verdict": "B"}\n'


class Failing(ScriptedEngine):
    """An engine that a test makes silent or dead, and alive again."""

    def __init__(self) -> None:
        super().__init__()
        self.is_silent = False
        self.is_dead = False
        self.calls: list[int] = []

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        if self.is_dead:
            raise StartupError("no room on the GPU")
        return await super().start(prompt, on_stage)

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self.calls.append(len(prompts))
        if self.is_dead:
            raise EngineUnavailableError("the engine has died")
        return [] if self.is_silent else await super().label_logits(prompts, times)

    async def lost(self) -> str:
        await until(lambda: self.is_dead)
        return "the engine has died"


def test_an_engine_that_does_not_answer_leaves_the_part_undone(tmp_path: Path) -> None:
    scene, engine = Scene(tmp_path), Failing()
    worker = PartWorker(scene.job, pause_s=0, new_engine=lambda settings: engine)
    assert worker.judge(0, scene.parts[0]).kind == "done"
    engine.is_silent = True
    engine.calls.clear()
    outcome = worker.judge(1, scene.parts[1])
    worker.close()
    assert outcome.kind == "failed"
    assert "0 answers to 8 prompts" in outcome.detail
    assert engine.calls == [8] * 3
    assert scene.output.receipt(1) is None


def test_without_the_calibration_of_the_job_the_run_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, alpha=0.1)
    outcome = judged(scene)
    assert outcome.kind == "refused"
    assert "no calibration" in outcome.detail
    assert list(scene.job.out.glob("parts/*")) == []


def test_a_calibration_that_cannot_be_read_leaves_the_part_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def corrupt(self: MemoryStore, name: str) -> None:
        raise StoreCorruptError("this is no calibration")

    monkeypatch.setattr(MemoryStore, "version", corrupt)
    scene = Scene(tmp_path, alpha=0.1)
    assert judged(scene) == PartOutcome(part=1, kind="failed", detail="this is no calibration")
    assert scene.output.receipt(1) is None


def test_a_restart_that_fails_is_tried_again_later(tmp_path: Path) -> None:
    scene, engine = Scene(tmp_path), Failing()
    # Long enough that the death is noticed before the second try.
    worker = PartWorker(scene.job, pause_s=0.1, new_engine=lambda settings: engine)
    assert worker.judge(0, scene.parts[0]).kind == "done"
    engine.is_dead = True
    assert worker.judge(1, scene.parts[1]) == PartOutcome(
        part=1, kind="failed", detail="no room on the GPU"
    )
    engine.is_dead = False
    assert worker.judge(1, scene.parts[1]).kind == "done"
    worker.close()


def test_unreadable_input_fails_and_changed_input_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    file = tmp_path / "a.jsonl"
    away = file.rename(tmp_path / "away")
    outcome = judged(scene)
    assert outcome.kind == "failed"
    assert "cannot be read" in outcome.detail
    file.write_text(away.read_text().replace("quality=2", "quality=3"))
    assert judged(scene).kind == "refused"


def test_results_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.output.results_of(1).parent.rmdir()
    outcome = judged(scene)
    assert outcome.kind == "failed"
    assert outcome.detail == "results cannot be written: No such file or directory"


def test_another_judge_is_refused_and_loaded_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.output.claim(judge="another", fingerprint="f")
    outcome = judged(scene)
    assert outcome.kind == "refused"
    assert "another judge" in outcome.detail


def test_a_setting_that_cannot_work_is_refused(tmp_path: Path) -> None:
    assert judged(Scene(tmp_path, store_url="ftp://nowhere")).kind == "refused"


def test_the_report_of_an_unforeseen_error_contains_no_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene, text = Scene(tmp_path), " ".join(["a", "judged", "text"])

    class Broken(Part):
        def read(self) -> list[PartRow]:
            raise KeyError(text)

    worker = PartWorker(scene.job)
    outcome = worker.judge(
        0,
        Broken(
            source=InputFile(name="a", path=tmp_path, shape="pairs"),
            first=0,
            rows=1,
            offset=0,
            size=1,
            sha256="",
        ),
    )
    worker.close()
    assert outcome == PartOutcome(part=0, kind="failed", detail="unforeseen KeyError")
    assert text not in caplog.text


def parts(count: int) -> dict[int, Part]:
    return {
        i: Part(
            source=InputFile(name="a", path=Path("a"), shape="pairs"),
            first=0,
            rows=1,
            offset=0,
            size=1,
            sha256="",
        )
        for i in range(count)
    }


def test_lost_and_failed_parts_are_repeated_while_a_pass_finishes_any() -> None:
    passes = []

    def judge(undone: Mapping[int, Part]) -> Iterator[PartOutcome]:
        passes.append(sorted(undone))
        # The last part is lost with its machine, and the first always fails.
        for i in list(undone)[:-1] if len(undone) > 1 else ():
            yield (
                PartOutcome(part=i, kind="failed", detail="no engine")
                if i == 0
                else PartOutcome(part=i, kind="done", results=1)
            )

    outcomes = list(judged_parts(parts(4), judge))
    assert passes == [[0, 1, 2, 3], [0, 3]]
    assert [(o.part, o.kind, o.detail) for o in outcomes] == [
        (1, "done", ""),
        (2, "done", ""),
        (0, "failed", "no engine"),
        (3, "failed", "its machine was lost"),
    ]


def test_a_part_that_is_reported_twice_counts_once() -> None:
    def judge(undone: Mapping[int, Part]) -> Iterator[PartOutcome]:
        yield from [PartOutcome(part=0, kind="done", results=5)] * 2

    assert list(judged_parts(parts(1), judge)) == [PartOutcome(part=0, kind="done", results=5)]


def test_a_refusal_ends_the_run() -> None:
    def judge(undone: Mapping[int, Part]) -> Iterator[PartOutcome]:
        yield PartOutcome(part=0, kind="refused", detail="another judge")

    with pytest.raises(StartupError, match="another judge"):
        list(judged_parts(parts(2), judge))


def test_paths_mean_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge").mkdir()
    settings = Settings(model="judge", store_url="sqlite:///x.db")
    job = Job.of(settings, {}, Path("out"))
    assert job.settings.model == str(tmp_path / "judge")
    assert job.settings.store_url == f"sqlite:///{tmp_path}/x.db"
    assert job.out == tmp_path / "out"
    assert job.criterion == {**CRITERION, "alpha": 0.1}


def test_a_row_with_a_delta_of_its_own_shares_it_too() -> None:
    given = {"guarantee": "pac", "delta": 0.1, "delta_for": 5}
    job = Job.of(Settings(store_url="memory://"), given, Path("out"))
    rows = [{**items()[0], **fields} for fields in ({}, {"delta": 0.05}, {"delta_for": 1})]
    batch = JudgeBatchIn.model_validate({**job.criterion, "comparisons": rows})
    found = [
        item.asked
        for item in batch.items(CriterionDefaults(alpha=0.1, guarantee="marginal", delta=0.3))
    ]
    deltas = [each.criterion.delta for each in found if isinstance(each, JudgeRequest)]
    assert deltas == [0.02, 0.01, 0.1]


def test_an_invalid_criterion_is_refused() -> None:
    for given in ({"delta": 0.1}, {"alpha": 2.0}, {"guarantee": "none"}, {"delta_for": 2}):
        with pytest.raises(InvalidRequestError):
            Job.of(Settings(), given, Path("out"))


def test_several_machines_need_one_store() -> None:
    job = Job.of(Settings(store_url="memory://"), {}, Path("out"))
    job.check_store(machines=1)
    with pytest.raises(StartupError, match="SCOPE_STORE_URL=redis"):
        job.check_store(machines=2)
    Job.of(Settings(store_url="redis://a"), {}, Path("out")).check_store(machines=2)
    Job.of(Settings(store_url="memory://"), {"alpha": None}, Path("out")).check_store(machines=2)


def test_a_judge_has_the_gpus_of_one_machine() -> None:
    assert judges_on([8, 8, 0], of_each=4) == 4
    assert judges_on([3, 3], of_each=2) == 2
    with pytest.raises(StartupError, match="no machine of the cluster has 2 GPUs"):
        judges_on([1, 1, 1], of_each=2)
