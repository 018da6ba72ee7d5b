"""TRL's own GRPOTrainer with rewards of a running service whose judge is scripted."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.trainers.training import (
    Plan,
    Run,
    check_advantages,
    check_rewards,
    counts,
    environment,
    train,
)
from tests.patience import PATIENCE_S
from tests.unit.clients.adapters.service import served

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("trl") is None,
        reason="trl is not installed: `make setup-dev` installs it",
    ),
]

# Close qualities are uncertain in the set "hard", and ENDLESS is an error of its comparisons.
ANSWERS = (*(f"quality=0.{i}" for i in range(9)), "quality=3", "ENDLESS")
QUESTIONS = ("Which?", "Which one?", "And which?", "Which now?")
PLAN = Plan(QUESTIONS, ANSWERS, alpha=0.2, calibration="hard", generations=4, batch=16)
# Six completions in groups of two on processes of three: the middle group is on both.
SPLIT = PLAN._replace(generations=2, batch=3, processes=2)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url


def trained(url: str, plan: Plan, folder: Path) -> Run:
    run = train(sys.executable, url, plan, folder)
    assert len(run.logs["steps"]) == 2
    assert run.logs["processes"] == plan.processes
    return run


def test_no_reward_reaches_the_trainer_as_none_and_leaves_the_baseline(
    url: str, tmp_path: Path
) -> None:
    logs = trained(url, PLAN, tmp_path).logs
    assert {"rewarded", "abstained"} <= set(counts(logs))
    check_rewards(logs, url, PLAN)
    check_advantages(logs)
    for step, logged in zip(logs["steps"], logs["history"], strict=False):
        known = [each for each in step["rewards"] if each is not None]
        assert logged["rewards/scope_reward/mean"] == pytest.approx(sum(known) / len(known))
        share = step["reasons"].count("abstained") / len(step["reasons"])
        assert logged["scope_judge/abstained"] == pytest.approx(share)


def test_a_group_that_is_split_over_processes_is_judged_as_a_whole(
    url: str, tmp_path: Path
) -> None:
    logs = trained(url, SPLIT, tmp_path).logs
    check_rewards(logs, url, SPLIT)
    check_advantages(logs)


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
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
    ended = subprocess.run(
        [*TORCHRUN, str(file), str(written), url],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    found = {each.name: json.loads(each.read_text()) for each in written.iterdir()}
    assert len(found) == 2, ended.stderr
    assert found["0"] == {"rewards": [-1.0, 1.0, -1.0], "error": "engine_unavailable"}
    assert found["1"] == {"rewards": [1.0, -1.0, 1.0], "error": "engine_unavailable"}
