"""TRL's own GRPOTrainer with rewards of a running service whose judge is scripted."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scope_judge import ScopeClient
from tests.unit.clients.adapters.service import served

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("trl") is None,
        reason="trl is not installed: `make setup-dev` installs it",
    ),
]

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600.0
# Close qualities are uncertain in the set "hard", and ENDLESS is an error of its comparisons.
ANSWERS = (*(f"quality=0.{i}" for i in range(9)), "quality=3", "ENDLESS")
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")


class Plan(NamedTuple):
    """A training: what the tiny policy can say, and how many completions it makes.

    Args:
        generations: Completions of each prompt.
        batch: Completions of each process and step.
        processes: Number of processes, 1 or 2.
    """

    generations: int
    batch: int
    processes: int = 1
    questions: tuple[str, ...] = ("Which?", "Which one?", "And which?", "Which now?")
    answers: tuple[str, ...] = ANSWERS
    alpha: float = 0.2
    calibration: str = "hard"

    def groups(self, step: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """The rows of a step, grouped by their prompt."""
        rows = [dict(zip(step, values, strict=True)) for values in zip(*step.values(), strict=True)]
        size = self.generations
        return [rows[start : start + size] for start in range(0, len(rows), size)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url


def python(*words: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, which downloads nothing."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
    paths = [str(ROOT / "clients" / "python"), str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    environment = {**kept, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )


def trained(url: str, plan: Plan, folder: Path) -> dict[str, Any]:
    """Trains, and checks the rewards and advantages that the trainer logged; returns its logs."""
    out = folder / "logs.json"
    given = json.dumps({**plan._asdict(), "url": url, "out": str(out)})
    spread = [*TORCHRUN, "-m"] if plan.processes > 1 else []
    ended = python("-m", *spread, "tests.integration.trainers.in_trl", given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    logs: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert (len(logs["steps"]), logs["processes"]) == (2, plan.processes)
    with ScopeClient(url) as client:
        for step in logs["steps"]:
            for group in plan.groups(step):
                check_rewards(client, group, plan)
                check_advantages(group)
    return logs


def check_rewards(client: ScopeClient, group: list[dict[str, Any]], plan: Plan) -> None:
    """Each logged reward is the service's for the whole group; None was logged as no reward."""
    completions, logged = ([row[key] for row in group] for key in ("completions", "rewards"))
    asked = client.rewards(
        group[0]["prompts"], completions, alpha=plan.alpha, calibration=plan.calibration
    )
    assert [each is None for each in asked] == [each is None for each in logged]
    assert [row["reasons"] == "rewarded" for row in group] == [each is not None for each in asked]
    for theirs, ours in zip(logged, asked, strict=True):
        assert theirs is None or abs(theirs - (ours or 0.0)) < 1e-6


def check_advantages(group: list[dict[str, Any]]) -> None:
    """The baseline and the scale of a group are those of its rewards, without the missing ones."""
    known = [row["rewards"] for row in group if row["rewards"] is not None]
    mean = statistics.fmean(known) if known else 0.0
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    for row in group:
        reward, advantage = row["rewards"], row["advantages"]
        expected = 0.0 if reward is None else (reward - mean) / (deviation + 1e-4)
        assert abs(advantage - expected) < 1e-3, (group, row)


def test_no_reward_reaches_the_trainer_as_none_and_leaves_the_baseline(
    url: str, tmp_path: Path
) -> None:
    logs = trained(url, Plan(generations=4, batch=16), tmp_path)
    assert {"rewarded", "abstained"} <= {each for step in logs["steps"] for each in step["reasons"]}
    for step, logged in zip(logs["steps"], logs["history"], strict=False):
        known = [each for each in step["rewards"] if each is not None]
        assert logged["rewards/scope_reward/mean"] == pytest.approx(sum(known) / len(known))
        share = step["reasons"].count("abstained") / len(step["reasons"])
        assert logged["scope_judge/abstained"] == pytest.approx(share)


def test_a_group_that_is_split_over_processes_is_judged_as_a_whole(
    url: str, tmp_path: Path
) -> None:
    # Six completions in groups of two on processes of three: the middle group is on both.
    trained(url, Plan(generations=2, batch=3, processes=2), tmp_path)


_TWO_PROCESSES = """
import json, sys
from pathlib import Path
from accelerate import PartialState
from scope_judge import UnavailableError
from scope_judge.processes import of_all_processes
from scope_judge.trl import ScopeReward

state = PartialState(cpu=True)
# The second of three pairs is on both processes.
own = slice(3 * state.process_index, 3 * state.process_index + 3)
prompts = ["One?", "One?", "Two?", "Two?", "Three?", "Three?"]
completions = ["quality=0", "quality=3"] * 3
rewards = ScopeReward(url=sys.argv[2], alpha=0.2)(prompts[own], completions[own])

def judged(rows):
    raise UnavailableError("gone", code="engine_unavailable", status=503)

try:
    of_all_processes(["a"], judged)
except UnavailableError as exc:
    # Lines of several processes would mix on stdout.
    text = json.dumps({"rewards": rewards, "error": exc.code})
    Path(sys.argv[1], str(state.process_index)).write_text(text)
"""


def test_two_processes_compare_a_pair_that_they_share_and_both_raise_an_error_of_one(
    url: str, tmp_path: Path
) -> None:
    file, written = tmp_path / "program.py", tmp_path / "written"
    file.write_text(_TWO_PROCESSES)
    written.mkdir()
    ended = python("-m", *TORCHRUN, str(file), str(written), url)
    found = {each.name: json.loads(each.read_text()) for each in written.iterdir()}
    assert len(found) == 2, ended.stdout + ended.stderr
    assert found["0"] == {"rewards": [-1.0, 1.0, -1.0], "error": "engine_unavailable"}
    assert found["1"] == {"rewards": [1.0, -1.0, 1.0], "error": "engine_unavailable"}
