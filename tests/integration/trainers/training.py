"""Starts a training with TRL, and checks the trainer's logs against the service's own answers."""

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scope_judge import ScopeClient

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600.0


class Plan(NamedTuple):
    """One training.

    Args:
        questions: The prompts.
        answers: All texts that the tiny policy can say, besides an empty one.
        alpha: Bound on the error of the comparisons.
        calibration: Calibration set.
        generations: Completions of each prompt.
        batch: Completions of each process and step.
        processes: Number of processes.
    """

    questions: Sequence[str]
    answers: Sequence[str]
    alpha: float
    calibration: str = "default"
    generations: int = 8
    batch: int = 8
    processes: int = 1


class Run(NamedTuple):
    """The logs of a training, and what it has printed."""

    logs: dict[str, Any]
    output: str


def train(python: str, url: str, plan: Plan, folder: Path) -> Run:
    """Trains in the environment of a Python; raises AssertionError if it fails."""
    out = folder / "logs.json"
    module = ["-m", "tests.integration.trainers.in_trl"]
    if plan.processes > 1:
        spread = ["-m", "torch.distributed.run", "--standalone"]
        module = [*spread, f"--nproc-per-node={plan.processes}", *module]
    options = [
        *(f"--question={question}" for question in plan.questions),
        *(f"--answer={answer}" for answer in plan.answers),
        f"--url={url}",
        f"--out={out}",
        f"--alpha={plan.alpha}",
        f"--calibration={plan.calibration}",
        f"--generations={plan.generations}",
        f"--batch={plan.batch}",
    ]
    ended = subprocess.run(
        [python, *module, *options],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    return Run(json.loads(out.read_text(encoding="utf-8")), output)


def environment() -> dict[str, str]:
    """The environment of a framework's process: the client and the drills can be imported."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SCOPE_")}
    paths = [str(ROOT / "clients" / "python"), str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    # Nothing is downloaded.
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}


def check_rewards(logs: dict[str, Any], url: str, plan: Plan) -> None:
    """Each logged reward is the service's for the whole group; None was logged as no reward."""
    with ScopeClient(url) as client:
        for step in logs["steps"]:
            for group in groups_of(step, plan.generations):
                question, completions = group[0]["prompts"], [row["completions"] for row in group]
                asked = client.rewards(
                    question, completions, alpha=plan.alpha, calibration=plan.calibration
                )
                logged = [row["rewards"] for row in group]
                assert [each is None for each in asked] == [each is None for each in logged]
                assert [row["reasons"] == "rewarded" for row in group] == [
                    each is not None for each in asked
                ]
                for theirs, ours in zip(logged, asked, strict=True):
                    assert theirs is None or abs(theirs - (ours or 0.0)) < 1e-6


def check_advantages(logs: dict[str, Any]) -> None:
    """The baseline and the scale of a group are those of its rewards, without the missing ones."""
    for step in logs["steps"]:
        for group in groups_of(step, logs["generations"]):
            known = [row["rewards"] for row in group if row["rewards"] is not None]
            mean = statistics.fmean(known) if known else 0.0
            deviation = statistics.stdev(known) if len(known) > 1 else 0.0
            for row in group:
                reward, advantage = row["rewards"], row["advantages"]
                expected = 0.0 if reward is None else (reward - mean) / (deviation + 1e-4)
                assert abs(advantage - expected) < 1e-3, (group, row)


def groups_of(step: dict[str, Any], size: int) -> list[list[dict[str, Any]]]:
    """The rows of a step, grouped by their prompt."""
    rows = [dict(zip(step, values, strict=True)) for values in zip(*step.values(), strict=True)]
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def counts(logs: dict[str, Any]) -> dict[str, int]:
    """Number of completions by the reason of a missing reward, or "rewarded"."""
    reasons = [reason for step in logs["steps"] for reason in step["reasons"]]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}
