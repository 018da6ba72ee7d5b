import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidRequestError, StartupError
from app.engines.scripted import ScriptedEngine
from app.fleet.job import Job
from app.fleet.output import Output
from app.fleet.parts import LinesPart, Part, Row, cut
from app.fleet.passes import judged_parts
from app.fleet.worker import Outcome, PartWorker, judge_rows
from app.settings import Settings
from tests.serving import client_of, services_of

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


@pytest.mark.anyio
async def test_rows_are_answered_as_a_batch_is() -> None:
    rows = [Row(i, value) for i, value in enumerate(items())]
    async with services_of() as services:
        results = await judge_rows(services, rows, CRITERION)
    async with client_of() as client:
        answer = await client.post("/judge/batch", json={"alpha": None, "comparisons": items()})
    assert results == answer.json()["results"]
    assert sum("error" in result for result in results) == 4


@pytest.mark.anyio
async def test_a_line_that_is_no_json_is_an_error_row() -> None:
    rows = [Row(0, InvalidRequestError("this line is no JSON")), Row(1, items()[0])]
    async with services_of() as services:
        broken, judged = await judge_rows(services, rows, CRITERION)
    assert broken["error"]["code"] == "invalid_request"
    assert judged["verdict"] == "A"


class Scene:
    """Two parts of four rows, and a folder for their results."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        file = folder / "a.jsonl"
        file.write_text("".join(json.dumps(item) + "\n" for item in items()[:1] * 8))
        self.parts = cut([file], rows_per_part=4).parts
        given = {"engine": "scripted", "store_url": "memory://", **settings}
        self.job = Job.of(Settings(**given), {"alpha": None}, folder / "out")
        self.output = Output(self.job.out)
        self.output.begin({})


def judged(scene: Scene) -> Outcome:
    worker = PartWorker(scene.job, pause_s=0)
    try:
        return worker.judge(1, scene.parts[1])
    finally:
        worker.close()


def test_a_part_is_judged_into_its_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert judged(scene) == Outcome(1, "done", 4)
    lines = [json.loads(line) for line in scene.output.results_of(1).read_text().splitlines()]
    assert [line["input"] for line in lines] == [
        {"shard": "a.jsonl", "row": row} for row in range(4, 8)
    ]
    assert [line["verdict"] for line in lines] == ["A"] * 4


def test_a_part_that_is_done_is_not_judged_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.output.write_part(1, [{"verdict": "B"}])
    assert judged(scene) == Outcome(1, "done", 1)
    assert scene.output.results_of(1).read_text() == '{"verdict": "B"}\n'


def test_an_engine_that_does_not_answer_leaves_the_part_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def silent(self: ScriptedEngine, prompts: Any) -> list[Any]:
        calls.append(len(prompts))
        return []

    scene = Scene(tmp_path)
    worker = PartWorker(scene.job, pause_s=0)
    assert worker.judge(0, scene.parts[0]).kind == "done"
    monkeypatch.setattr(ScriptedEngine, "label_logits", silent)
    outcome = worker.judge(1, scene.parts[1])
    worker.close()
    assert outcome.kind == "failed"
    assert "0 of 8 prompts" in outcome.detail
    assert calls == [8] * 3
    assert scene.output.receipt(1) is None


def test_another_judge_is_refused_and_loaded_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.output.claim(judge="another", fingerprint="f")
    outcome = judged(scene)
    assert outcome.kind == "refused"
    assert "another judge" in outcome.detail


def test_a_setting_that_cannot_work_is_refused(tmp_path: Path) -> None:
    assert judged(Scene(tmp_path, store_url="ftp://nowhere")).kind == "refused"


def test_an_unforeseen_error_tells_no_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene, text = Scene(tmp_path), " ".join(["a", "judged", "text"])

    class Broken(LinesPart):
        def read(self) -> list[Row]:
            raise KeyError(text)

    worker = PartWorker(scene.job)
    outcome = worker.judge(0, Broken("a", tmp_path, 0, 1, 0, 1, ""))
    worker.close()
    assert outcome == Outcome(0, "failed", detail="unforeseen KeyError")
    assert text not in caplog.text


def parts(count: int) -> dict[int, Part]:
    return {i: LinesPart("a", Path("a"), 0, 1, 0, 1, "") for i in range(count)}


def test_lost_and_failed_parts_are_gone_over_as_long_as_that_helps() -> None:
    passes = []

    def judge(undone: Mapping[int, Part]) -> Iterator[Outcome]:
        passes.append(sorted(undone))
        # The last is lost with its machine, and the first always fails.
        for i in list(undone)[:-1] if len(undone) > 1 else ():
            yield Outcome(i, "failed", detail="no engine") if i == 0 else Outcome(i, "done", 1)

    outcomes = list(judged_parts(parts(4), judge))
    assert passes == [[0, 1, 2, 3], [0, 3]]
    assert [(o.part, o.kind, o.detail) for o in outcomes] == [
        (1, "done", ""),
        (2, "done", ""),
        (0, "failed", "no engine"),
        (3, "failed", "its machine was lost"),
    ]


def test_a_part_that_is_told_twice_counts_once() -> None:
    def judge(undone: Mapping[int, Part]) -> Iterator[Outcome]:
        yield from [Outcome(0, "done", 5)] * 2

    assert list(judged_parts(parts(1), judge)) == [Outcome(0, "done", 5)]


def test_a_refusal_ends_the_run() -> None:
    def judge(undone: Mapping[int, Part]) -> Iterator[Outcome]:
        yield Outcome(0, "refused", detail="another judge")

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


def test_a_criterion_without_meaning_is_refused() -> None:
    for given in ({"delta": 0.1}, {"alpha": 2.0}, {"guarantee": "none"}):
        with pytest.raises(InvalidRequestError):
            Job.of(Settings(), given, Path("out"))


def test_several_machines_need_one_store() -> None:
    job = Job.of(Settings(store_url="memory://"), {}, Path("out"))
    job.check_store(machines=1)
    with pytest.raises(StartupError, match="SCOPE_STORE_URL=redis"):
        job.check_store(machines=2)
    Job.of(Settings(store_url="redis://a"), {}, Path("out")).check_store(machines=2)
    Job.of(Settings(store_url="memory://"), {"alpha": None}, Path("out")).check_store(machines=2)
