"""Bulk judging on Ray: comparisons judged as a batch, retries, refusals, and lost judges."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.errors import (
    EngineUnavailableError,
    StartupError,
    StoreCorruptError,
    StoreUnavailableError,
)
from app.fleet.bulk import RayJudges, check_store, everywhere, joined, judges_on
from app.fleet.worker import BulkJudge, judge_rows
from app.judges.engines.scripted import ScriptedEngine
from app.ports import (
    CallTimes,
    EngineIdentity,
    Head,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    no_stage,
)
from app.settings import Settings
from app.stores.memory import MemoryStore
from tests.patience import PATIENCE_S, until
from tests.serving import client_of, labelled, services_of

FREE: dict[str, Any] = {"alpha": None}
MET: dict[str, Any] = {"alpha": 0.1}
PAIR = {"question": "q", "response_a": "quality=2", "response_b": "quality=1", "id": "good"}
EXAMPLES = [labelled(2.0, "A", number=number) for number in range(30)]


def items() -> list[Any]:
    return [
        PAIR,
        {**PAIR, "response_a": " ", "id": 2},
        {**PAIR, "alpha": 0.1, "calibration": "missing"},
        {**PAIR, "alpha": 2.0},
        {**PAIR, "response_a": "quality=0"},
    ]


async def test_comparisons_are_judged_as_a_batch_is() -> None:
    async with services_of() as services:
        results = await judge_rows(services, items(), FREE)
    async with client_of() as client:
        answer = await client.post("/judge/batch", json={"alpha": None, "comparisons": items()})
    assert results == answer.json()["results"]
    assert sum("error" in result for result in results) == 3


@pytest.mark.parametrize(("owner", "reason"), [(None, "no calibration"), ("another", "judge")])
async def test_without_a_calibration_of_this_judge_nothing_is_judged(
    owner: str | None, reason: str
) -> None:
    store = MemoryStore()
    if owner:
        async with services_of(ScriptedEngine(judge=owner), store) as services:
            await services.calibrator.add("default", EXAMPLES)
    async with services_of(store=store) as services:
        with pytest.raises(StartupError, match=reason):
            await judge_rows(services, [PAIR], MET)


async def test_a_row_that_names_its_own_calibration_has_its_own_error() -> None:
    async with services_of() as services:
        await services.calibrator.add("default", EXAMPLES)
        rows = [{**PAIR, "calibration": "missing"}, PAIR]
        other, judged = await judge_rows(services, rows, MET)
    assert other["error"]["code"] == "calibration_not_found"
    assert judged["calibration"]["name"] == "default"


class Troubled(MemoryStore):
    """A store that raises `error` for every set once it is set."""

    error: Exception | None = None

    async def head(self, name: str) -> Head | None:
        if self.error is not None:
            raise self.error
        return await super().head(name)


async def test_a_calibration_that_cannot_be_read_is_no_result() -> None:
    store = Troubled()
    async with services_of(store=store) as services:
        store.error = StoreCorruptError("this is no calibration")
        with pytest.raises(StoreCorruptError):
            await judge_rows(services, [PAIR], MET)


async def test_thresholds_that_the_store_does_not_confirm_give_no_results() -> None:
    store = Troubled()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", EXAMPLES)
        assert await judge_rows(services, [PAIR], MET)
        store.error = StoreUnavailableError("nobody is there")

        async def judge_on() -> None:
            # Thresholds of half a second ago still count as confirmed.
            while True:
                await judge_rows(services, [PAIR], MET)
                await asyncio.sleep(0.02)

        with pytest.raises(StoreUnavailableError, match="does not confirm"):
            await asyncio.wait_for(judge_on(), PATIENCE_S)


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


def scripted(**given: Any) -> Settings:
    return Settings(**{"engine": "scripted", "store_url": "memory://", **given})


async def test_an_engine_that_does_not_answer_is_asked_three_times() -> None:
    engine = Failing()
    judge = BulkJudge(scripted(), FREE, pause_s=0, new_engine=lambda settings: engine)
    assert len((await judge.judge([PAIR] * 4))[0]) == 4
    engine.is_silent = True
    engine.calls.clear()
    results, failure = await judge.judge([PAIR] * 4)
    assert "0 answers to 8 prompts" in failure
    assert not results
    # A readiness check may have asked, too.
    assert engine.calls.count(8) == 3
    await judge.close()


async def test_a_judge_that_has_died_is_loaded_again() -> None:
    engine = Failing()
    # Long enough that the death is noticed before the second try.
    judge = BulkJudge(scripted(), FREE, pause_s=0.1, new_engine=lambda settings: engine)
    assert (await judge.judge([PAIR]))[0]
    engine.is_dead = True
    assert (await judge.judge([PAIR]))[1] == "no room on the GPU"
    engine.is_dead = False
    assert (await judge.judge([PAIR]))[0]
    await judge.close()


async def test_a_setting_that_cannot_work_is_refused() -> None:
    _, refusal = await BulkJudge(scripted(store_url="ftp://nowhere"), FREE).ready()
    assert "SCOPE_STORE_URL" in refusal


async def test_the_report_of_an_unforeseen_error_contains_no_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(["a", "judged", "text"])

    async def broken(*_: Any) -> None:
        raise KeyError(text)

    monkeypatch.setattr("app.fleet.worker.judge_rows", broken)
    judge = BulkJudge(scripted(), FREE)
    assert (await judge.judge([PAIR]))[1] == "unforeseen KeyError"
    assert text not in caplog.text
    await judge.close()


def test_paths_mean_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("judge").mkdir()
    found = everywhere(scripted(model="judge", store_url="sqlite:///sets.db"))
    assert found.model == str(tmp_path / "judge")
    assert found.store_url == f"sqlite:///{tmp_path / 'sets.db'}"
    assert everywhere(scripted(model="demo")).model == "demo"


def test_several_machines_need_one_store() -> None:
    local = scripted()
    check_store(local, MET, machines=1)
    check_store(local, FREE, machines=2)
    check_store(scripted(store_url="redis://host/0"), MET, machines=2)
    with pytest.raises(StartupError, match="redis://host:port/db"):
        check_store(local, MET, machines=2)


def test_a_judge_has_the_gpus_of_one_machine() -> None:
    assert judges_on([8, 3, 0], of_each=2) == 5
    with pytest.raises(StartupError, match="no machine of the cluster has 4 GPUs"):
        judges_on([2, 3], of_each=4)


def test_a_missing_cluster_is_reported_at_once() -> None:
    joining = joined("127.0.0.1:1", scripted(), FREE, replicas=1, batch_size=10)
    with pytest.raises(StartupError, match=r"no Ray cluster at 127\.0\.0\.1:1"), joining:
        pass


@pytest.fixture
def judges() -> Iterator[RayJudges]:
    """Two judges on a cluster of this machine."""
    with joined(None, scripted(), FREE, replicas=2, batch_size=10) as running:
        yield running


@pytest.mark.long
def test_every_comparison_is_judged_once_although_a_judge_is_killed(judges: RayJudges) -> None:
    asked = {f"{i}": {**PAIR, "question": f"Question {i}?"} for i in range(2000)}
    keys: list[str] = []
    for number, (key, result) in enumerate(judges.ask(asked)):
        keys.append(key)
        assert result["verdict"] == "A"
        if number == 200:
            actors = [
                process
                for process in psutil.Process().children(recursive=True)
                if process.name().startswith("ray::BulkJudge")
            ]
            assert actors
            os.kill(actors[0].pid, signal.SIGKILL)
    assert sorted(keys) == sorted(asked)


@pytest.mark.long
def test_the_command_writes_the_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "pairs.jsonl", tmp_path / "out.jsonl"
    rows = [{**PAIR, "question": f"Question {i}?", "id": i} for i in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
    arguments = ["judge", str(file), "--ray", "--no-alpha", "--replicas", "1", "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--batch-size", "7"], env=environment)
    assert result.exit_code == 0, result.output
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in written] == list(range(30))
    assert {row["judgment"]["verdict"] for row in written} == {"A"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == [out.name]
