"""`make doors`: the adapters inside their frameworks; exits with 1 if one breaks its contract.

It makes the frameworks' environments (several GB), starts the service with a scripted judge for the
table of outcomes, and with the demo judge on vLLM for the training with TRL.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.core.errors import EngineUnavailableError
from app.engines.scripted import ScriptedEngine
from tests.drills.doors.asking import ERROR, FRAMEWORKS, Asked, ask
from tests.drills.doors.environments import ENVIRONMENTS, python_of
from tests.drills.doors.training import Plan, check_advantages, check_rewards, counts, train
from tests.integration.processes.server import Server
from tests.patience import VLLM_START_S
from tests.unit.api.rewards.test_doors import raises
from tests.unit.clients.adapters.scenes import SCENES, Found
from tests.unit.clients.adapters.service import served

UNANSWERED = Found(None, "unanswered")
DEMO = {
    "right": Asked("odd", "even", {}, "Is the number 4821 even or odd?"),
    "wrong": Asked("even", "odd", {}, "Is the number 4821 even or odd?"),
    # The demo judge never learnt to add.
    "abstained": Asked("75", "76", {"alpha": 0.05}, "What is 48 + 27?"),
}
EXPECTED = {
    "right": Found(1.0, None),
    "wrong": Found(-1.0, None),
    "abstained": Found(None, "abstained"),
}
SUMS = [f"What is {a} + {b}?" for a, b in ((48, 27), (51, 24), (16, 59), (33, 42))]
# Close wrong sums, on most of which the judge abstains, and an answer that no sum has.
PLAN = Plan(SUMS, [*map(str, range(70, 81)), "odd"], alpha=0.05, generations=4, batch=16)
SPLIT = PLAN._replace(generations=2, batch=3, processes=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the drill and prints a line for each check."""
    given = _arguments(arguments)
    pythons = {name: python_of(name, given.environments.absolute()) for name in given.only}
    wrong = 0
    others = [name for name in pythons if name != "trl"]
    down = served(ScriptedEngine(raises(EngineUnavailableError("down"))), calibrated=False)
    slow = served(ScriptedEngine(latency_s=3600.0), calibrated=False, timeout_s=0.05)
    with served() as url, down as down_url, slow as slow_url:
        for name in others:
            # 503, 504, and nobody at the address.
            broken = (down_url, slow_url, "http://127.0.0.1:9")
            wrong += _check_scenes(name, pythons[name], url, broken)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-doors-"))
    settings = {"SCOPE_STORE_URL": f"sqlite:///{folder}/calibration.db"}
    with Server(folder, settings, start_timeout_s=VLLM_START_S) as server:
        url = str(server.client.base_url)
        for name in others:
            asked = [each._replace(options={**each.options, "url": url}) for each in DEMO.values()]
            found = ask(name, pythons[name], asked).found
            wrong += _report(name, "demo judge on vLLM", [*EXPECTED.values()], found)
        if "trl" in pythons:
            wrong += _check_training(pythons["trl"], url, folder)
    sys.exit(1 if wrong else 0)


def _check_scenes(name: str, python: str, url: str, broken: Sequence[str]) -> int:
    """Number of outcomes and failures that a framework has not recorded as it should."""
    scenes = [Asked(s.response, s.opponent, {**s.options, "url": url}) for s in SCENES.values()]
    expected = [scene.expected for scene in SCENES.values()]
    failing = [
        Asked("quality=1", "quality=0", {"patience_s": 0.0, "alpha": None, "url": each})
        for each in broken
    ]
    failing.append(Asked("quality=1", "quality=0", {"url": url, "calibration": "absent"}))
    errors = [ERROR] * len(failing)
    if FRAMEWORKS[name].takes_failures:
        failing += [each._replace(options={**each.options, "failures": "none"}) for each in failing]
        # A wrong configuration is always an error.
        errors += [*([UNANSWERED] * len(broken)), ERROR]
    answers = ask(name, python, [*scenes, *failing])
    print(f"{name}: {answers.versions}", flush=True)
    return _report(name, "outcomes and failures", [*expected, *errors], answers.found)


def _report(name: str, what: str, expected: Sequence[Found], found: Sequence[Found]) -> int:
    wrong = [pair for pair in zip(expected, found, strict=True) if not _same(*pair)]
    print(f"{name}, {what}: {len(found) - len(wrong)} of {len(found)} as promised", flush=True)
    for one, other in wrong:
        print(f"  expected {one}, found {other}", flush=True)
    return len(wrong)


def _same(expected: Found, found: Found) -> bool:
    if expected.number is None or found.number is None:
        return expected == found
    return abs(expected.number - found.number) < 1e-6


def _check_training(python: str, url: str, folder: Path) -> int:
    """Trains with TRL on one process and on two, with the demo judge's rewards."""
    for plan in (PLAN, SPLIT):
        logs = train(python, url, plan, folder).logs
        found = counts(logs)
        print(f"trl: {logs['versions']}, {logs['processes']} processes: {found}", flush=True)
        assert len(logs["steps"]) == 2
        assert {"rewarded", "abstained"} <= set(found) or plan is SPLIT
        assert "unopposed" not in found
        check_rewards(logs, url, plan)
        check_advantages(logs)
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make doors", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*ENVIRONMENTS], default=[*ENVIRONMENTS])
    parser.add_argument(
        "--environments", type=Path, default=Path(".cache/doors"), help="folder of the environments"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
