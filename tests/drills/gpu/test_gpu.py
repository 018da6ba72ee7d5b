"""The steps of `make gpu` on vLLM's CPU build, with tiny judges, and the page of their outcomes.

They show that each step works. Only a machine with a GPU shows what the steps then find.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engines.vllm_build import is_cpu_build
from docs.make_cost_table import PAGE as COST
from docs.make_cost_table import tables
from tests.drills.gpu.__main__ import main
from tests.drills.gpu.made import SHAPES
from tests.drills.gpu.record import FILE, PAGE, Record
from tests.drills.gpu.scene import Finding, NotRunError, RefusedError, Scene, with_cause
from tests.drills.gpu.steps import STEPS, Outcome, Step, outcome_of
from tests.markdown import between_markers

# Steps of the demo judge's engine, which starts once for all of them.
_SHARING = ("demo", "head", "gaps", "labels", "noise", "transformers")
# Steps that start judges of their own.
_STARTING = ("start", "throughput", "ctrl-c", "kills", "checkpoints")
# Steps that a machine without a GPU refuses, and a part of the reason.
_HARDWARE = {
    "machine": "no GPU answers nvidia-smi",
    "invariance": "VLLM_BATCH_INVARIANT=1 ends vLLM's CPU build",
    "two-gpus": "this machine has no GPU, and it takes two",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(folder=tmp_path_factory.mktemp("gpu"), small=True)
    yield scene
    scene.close()


@pytest.mark.vllm
@pytest.mark.long
@pytest.mark.parametrize("name", ["build", *_SHARING])
def test_a_step_passes_on_the_cpu_build(name: str, scene: Scene) -> None:
    outcome = outcome_of(name, scene)
    assert outcome.status == "passed", outcome.sentence
    assert outcome.figures


@pytest.mark.vllm
@pytest.mark.long
@pytest.mark.parametrize("name", _STARTING)
def test_a_step_that_starts_judges_passes_on_the_cpu_build(name: str, scene: Scene) -> None:
    outcome = outcome_of(name, scene)
    assert outcome.status == "passed", outcome.sentence
    assert outcome.figures


@pytest.mark.skipif(not is_cpu_build(), reason="this machine may have GPUs")
@pytest.mark.parametrize("name", _HARDWARE)
def test_a_step_that_needs_hardware_says_that_it_did_not_run(name: str, scene: Scene) -> None:
    outcome = outcome_of(name, scene)
    assert outcome.status == "not run"
    assert _HARDWARE[name] in outcome.sentence


def test_every_step_is_rehearsed() -> None:
    assert {"build", *_SHARING, *_STARTING, *_HARDWARE} == set(STEPS)
    assert len(STEPS) == 15


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (NotRunError("no GPU"), "not run", "no GPU"),
        (RefusedError("too old"), "failed", "the judge refused to start: too old"),
        (RuntimeError("a log\nits end"), "failed", "RuntimeError: its end"),
        (RuntimeError("log\nerror: no\nroom"), "failed", "RuntimeError: error: no room"),
        (SystemExit(), "failed", "SystemExit: without a message"),
    ],
)
def test_a_step_that_goes_wrong_is_an_outcome(
    error: BaseException,
    status: str,
    sentence: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(scene: Scene) -> Finding:
        raise error

    monkeypatch.setitem(STEPS, "machine", Step(title="wrong", run=run))
    outcome = outcome_of("machine", scene)
    assert (outcome.status, outcome.sentence) == (status, sentence)


def test_a_refusal_of_vllm_is_told_with_its_cause_from_the_log() -> None:
    log = (
        "(EngineCore pid=7) ERROR 11-22 23:47:04 [core.py:1510] RuntimeError: no such kernel\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    refusal = "vLLM could not load x: Engine core initialization failed. See root cause above."
    assert with_cause(refusal, log) == "vLLM ended: RuntimeError: no such kernel"
    assert with_cause(refusal, "nothing") == refusal
    assert with_cause("there is no GPU", log) == "there is no GPU"


def test_a_promise_that_does_not_hold_is_a_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = Finding(sentence="7 of 8 answered", held=False, figures={"answered": 7})
    monkeypatch.setitem(STEPS, "machine", Step(title="wrong", run=lambda scene: finding))
    outcome = outcome_of("machine", scene)
    assert (outcome.status, outcome.figures) == ("failed", {"answered": 7})


@pytest.mark.parametrize(
    ("name", "billions"),
    [("0.5B", 0.494), ("1.5B", 1.54), ("7B", 7.62), ("14B", 14.8), ("32B", 32.8)],
)
def test_a_made_judge_has_the_size_of_the_real_one(name: str, billions: float) -> None:
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_the_command_goes_on_after_a_failure_and_keeps_other_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(scene: Scene) -> Finding:
        raise RuntimeError("broken")

    works = Step(title="works", run=lambda scene: Finding(sentence="it works"))
    file = tmp_path / "gpu.json"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(STEPS, "machine", Step(title="fails", run=fail))
    monkeypatch.setitem(STEPS, "build", works)
    with pytest.raises(SystemExit, match="1"):
        main(["--only", "machine", "build", "--json", str(file), "--write"])
    monkeypatch.setitem(STEPS, "machine", works)
    main(["--only", "machine", "--json", str(file), "--write"])
    device = Scene(folder=tmp_path, small=True).device
    steps = json.loads(file.read_text())[device]["steps"]
    assert [steps[name]["status"] for name in ("machine", "build")] == ["passed", "passed"]
    assert "RuntimeError: broken" in capsys.readouterr().out


def test_a_rehearsal_writes_only_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = Step(title="works", run=lambda scene: Finding(sentence="it works"))
    monkeypatch.setitem(STEPS, "machine", works)
    main(["--only", "machine", "--json", str(tmp_path / "gpu.json")])
    assert not (tmp_path / "gpu.json").exists() or not is_cpu_build()


def _recorded(file: Path) -> Record:
    record = Record(file)
    record.begin("gpu")
    record.take(
        "gpu",
        Outcome(
            name="throughput",
            status="failed",
            sentence="7B 6.1 pairs/s | 90% of offline",
            figures={
                "tokens": 600,
                "shared_tokens": 200,
                "rates": [
                    {"shape": "7B", "contestant": "service", "per_second": 5.0},
                    {"shape": "7B", "contestant": "service", "per_second": 6.0},
                    {"shape": "7B", "contestant": "offline", "per_second": 7.0},
                ],
            },
            seconds=3.0,
        ),
    )
    return Record(file)


def test_the_page_says_that_there_is_no_run_on_a_gpu_until_there_is_one(tmp_path: Path) -> None:
    sentence = "**No GPU run exists yet.**"
    assert sentence in Record(tmp_path / "gpu.json").page()
    page = _recorded(tmp_path / "gpu.json").page()
    assert sentence not in page
    assert "| 11 | throughput beside others | failed | 7B 6.1 pairs/s \\| 90% of offline |" in page
    assert "| 1 | driver, capability, compiler | not run yet |" in page


def test_a_measured_judge_replaces_its_estimate_of_cost_and_no_other(tmp_path: Path) -> None:
    estimates = tables(Record(tmp_path / "none.json"))
    measured = tables(_recorded(tmp_path / "gpu.json"))
    for estimate, table in zip(estimates, measured, strict=True):
        changed = [line for line in table.splitlines() if line not in estimate.splitlines()]
        assert len(changed) == 1
        assert changed[0].startswith("| Qwen2.5-7B-Instruct, measured on")
    # 6 pairs a second of 2 x 600 - 200 tokens are 6,000 tokens a second; an MT-Bench pair reads
    # 1,700 of them.
    assert f"| {6000 / 1700:.1f}/s |" in measured[1]


def test_the_page_of_cost_is_made_from_the_measured_rates() -> None:
    page = COST.read_text(encoding="utf-8")
    for name, table in zip(("costs", "rates"), tables(Record(FILE)), strict=True):
        assert between_markers(name, table, page) == page, "run: python -m docs.make_cost_table"


def test_the_page_is_made_from_the_file() -> None:
    assert PAGE.read_text(encoding="utf-8") == Record(FILE).page()
