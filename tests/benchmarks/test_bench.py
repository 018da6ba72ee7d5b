"""Figures are computed correctly from their samples and kept, and every figure runs."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.code import code_hash
from tests.benchmarks.load import batch_bodies, single_bodies
from tests.benchmarks.measured import MEASURED, FigureFile
from tests.benchmarks.measurement import Failed, Figure, Sampling, Skipped
from tests.benchmarks.suite import NAMES, Suite
from tests.benchmarks.texts import demo_pairs
from tests.drills.attacks.scene import ROOT
from tests.real_judge import UnavailableJudgeError, real_judge

pytestmark = pytest.mark.long

RUN = {"made": "2026-11-22T14:00:00+00:00", "commit": "abc"}
LATER = {"made": "2026-11-23T14:00:00+00:00", "commit": "def"}


def figures_of(file: Path) -> list[dict[str, Any]]:
    """All figures of a file, in the order in which they were measured."""
    runs = json.loads(file.read_text())["runs"]
    return [figure for run in runs for figure in run["figures"]]


def test_a_ratio_is_the_median_of_the_repeats_own_ratios() -> None:
    # The ratios of the repeats are 2, 1 and 4; the ratio of the medians would be 8 / 2 = 4.
    figure = Figure("x", "1/s", ours=(2.0, 10.0, 8.0), theirs=(1.0, 10.0, 2.0), target=2.0)
    assert figure.compared == (2.0, 1.0, 4.0)
    assert figure.median == 2.0
    assert figure.spread == (1.0, 4.0)


def test_a_figure_of_an_even_number_of_repeats_has_the_mean_of_the_middle_two() -> None:
    assert Figure("x", "1/s", ours=(1.0, 2.0, 4.0, 9.0), theirs=(), target=1.0).median == 3.0


@pytest.mark.parametrize(
    ("at_most", "target", "met"),
    [(False, 2.0, True), (False, 2.1, False), (True, 2.0, True), (True, 1.9, False)],
)
def test_a_target_is_a_floor_or_a_ceiling(at_most: bool, target: float, met: bool) -> None:
    figure = Figure("x", "1/s", ours=(4.0,), theirs=(2.0,), target=target, at_most=at_most)
    assert figure.met is met


def test_an_absolute_target_is_compared_with_ours() -> None:
    figure = Figure("x", "1/s", ours=(2900.0, 3100.0, 3500.0), theirs=(), target=3000.0)
    assert figure.median == 3100.0
    assert figure.met


def test_a_figure_without_a_target_neither_meets_nor_misses_it() -> None:
    assert Figure("x", "s", ours=(4.0,), theirs=(), target=None).met is None


def test_a_file_keeps_each_figure_with_the_run_that_measured_it_last(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    file = FigureFile(path)
    for name in ("memory", "client-batch"):
        file.take(Figure(name, "x", (1.0,), (), target=1.0), RUN)
    again = FigureFile(path)
    again.take(Figure("memory", "x", (2.0,), (), target=1.0), LATER)
    found = FigureFile(path).entries
    assert found["memory"].figure["ours"] == [2.0]
    assert found["memory"].run == LATER
    assert found["client-batch"].run == RUN


def test_a_figure_that_was_not_measured_replaces_no_measurement(tmp_path: Path) -> None:
    file = FigureFile(tmp_path / "bench.json")
    file.take(Skipped("memory", "no reason"), RUN)
    assert file.entries["memory"].figure["skipped"] == "no reason"
    file.take(Figure("memory", "x", (2.0,), (), target=1.0), RUN)
    file.take(Failed("memory", "an error"), LATER)
    assert file.entries["memory"].figure["ours"] == (2.0,)


def test_a_quick_run_is_never_written_among_the_measured_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--only", "memory", "--json", str(MEASURED)])
    assert "--quick does not measure" in capsys.readouterr().err


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples and 1"):
        Figure("x", "1/s", ours=(1.0, 2.0), theirs=(1.0,), target=1.0)
    with pytest.raises(ValueError, match="no samples"):
        Figure("x", "1/s", ours=(), theirs=(), target=1.0)


def test_contestants_take_turns_on_the_same_repeat() -> None:
    calls: list[tuple[str, int]] = []

    def contestant(name: str, value: float) -> Callable[[int], float]:
        def sample(repeat: int) -> float:
            calls.append((name, repeat))
            return value + repeat

        return sample

    sampling = Sampling(folder=Path(), repeats=2)
    samples = sampling.in_turns([contestant("a", 10.0), contestant("b", 20.0)])
    assert calls == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert samples == [(10.0, 11.0), (20.0, 21.0)]


def test_figures_of_two_releases_need_the_other_one(tmp_path: Path) -> None:
    sampling = Sampling(folder=tmp_path, repeats=1, small=True)
    skipped = [*Suite(sampling).measure(["cpu-single", "cpu-batch"])]
    assert [type(figure) for figure in skipped] == [Skipped, Skipped]


def test_a_figure_that_fails_is_reported_and_the_next_one_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "bench.json", tmp_path / "not-a-release"
    other.mkdir()
    arguments = ["--quick", "--only", "http-scripted", "cpu-single", "--against", str(other)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json", str(file)])
    assert ended.value.code == 1
    good, bad = figures_of(file)
    assert (good["name"], bad["name"]) == ("http-scripted", "cpu-single")
    assert good["median"] > 0
    assert bad["failed"]
    assert "cpu-single: failed: " in capsys.readouterr().err


@pytest.mark.vllm
def test_the_figures_with_a_model_run_with_the_servers_of_the_comparison(tmp_path: Path) -> None:
    names = ["engine-demo", "chat-client-demo", "transformers-loop-demo"]
    file = tmp_path / "bench.json"
    main(["--quick", "--only", *names, "--json", str(file)])
    assert [figure["name"] for figure in figures_of(file)] == names
    assert all(figure["median"] > 0 for figure in figures_of(file))


@pytest.mark.vllm
def test_the_figures_with_the_real_judge_run(tmp_path: Path) -> None:
    try:
        real_judge()
    except UnavailableJudgeError as exc:
        pytest.skip(str(exc))
    # The other contestants run with the demo judge; here they would take another minute.
    names = ["engine-smollm2", "prefix-order"]
    file = tmp_path / "bench.json"
    main(["--quick", "--only", *names, "--json", str(file)])
    assert [figure["name"] for figure in figures_of(file)] == names
    assert all(figure["median"] > 0 for figure in figures_of(file))


@pytest.mark.vllm
def test_the_figures_of_the_start_run(tmp_path: Path) -> None:
    # Not start-cold: it would empty the page cache under the other tests.
    names = ["start-first", "start-again"]
    file = tmp_path / "bench.json"
    main(["--quick", "--only", *names, "--json", str(file)])
    assert [figure["name"] for figure in figures_of(file)] == names
    for figure in figures_of(file):
        assert figure["median"] > 0
        assert figure["target"] is figure["met"] is figure["theirs"] is None


def test_no_comparison_is_repeated() -> None:
    bodies = [*single_bodies(0, 50), *single_bodies(50, 50)]
    assert len(set(bodies)) == 100
    batches = [json.loads(body)["comparisons"] for body in batch_bodies(100, 3, 20)]
    assert [len(items) for items in batches] == [20, 20, 20]
    numbers = [item["id"] for item in itertools.chain.from_iterable(batches)]
    assert numbers == list(range(100, 160))


def test_each_repeat_has_pairs_of_its_own_and_the_same_ones_on_both_sides() -> None:
    first, again, second = demo_pairs(0, 200), demo_pairs(0, 200), demo_pairs(1, 200)
    assert first == again
    # Small families of pairs run out of questions, so vLLM may see a few prompts twice.
    assert len(set(first) & set(second)) < 20


def test_the_figures_without_a_model_run_and_are_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["http-scripted", "single-scripted", "memory", "client-batch", "client-stream"]
    names += ["audit-draws", "cpu-single", "cpu-batch"]
    file = tmp_path / "bench.json"
    # Compares this release with itself.
    main(["--quick", "--only", *names, "--against", str(ROOT), "--json", str(file)])
    (run,) = json.loads(file.read_text())["runs"]
    assert [figure["name"] for figure in run["figures"]] == names
    assert set(names) <= set(NAMES)
    for figure in run["figures"]:
        assert figure["code"] == code_hash(figure["name"])
        assert len(figure["ours"]) == 1
        assert figure["median"] > 0
        assert figure["spread"] == [figure["median"], figure["median"]]
    assert run["quick"] is True
    assert run["versions"]["fastapi"]
    table = capsys.readouterr().out
    assert all(name in table for name in names)
