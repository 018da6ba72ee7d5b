"""The steps of `make gpu`, in their order."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.drills.gpu import endings, machine, scores, speed, starts, thoughts
from tests.drills.gpu.scene import Finding, NotRunError, RefusedError, Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step: its title for people, and its function."""

    title: str
    run: Callable[[Scene], Finding]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The outcome of a step.

    Args:
        name: Name of the step.
        status: "not run" where this machine cannot run the step.
        sentence: The finding or the reason, in one line.
        figures: Measured numbers and facts by name.
        seconds: Time that the step took.
    """

    name: str
    status: Literal["passed", "failed", "not run"]
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float


STEPS: dict[str, Step] = {
    "machine": Step(title="driver, compiler, one vLLM", run=machine.machine),
    "demo": Step(title="the demo judge has the CPU's p", run=scores.demo_judge),
    "start": Step(title="a judge of 7B starts", run=starts.large_judge),
    "head": Step(title="a float32 head, no ties", run=scores.float32_head),
    "transformers": Step(title="against transformers", run=scores.against_transformers),
    "runners": Step(title="model runner V2 against V1", run=scores.both_runners),
    "labels": Step(title="exactly two labels, beside texts", run=scores.exactly_two_labels),
    "noise": Step(title="noise of batches and cache", run=scores.noise),
    "invariance": Step(title="the same, batch-invariant", run=scores.noise_with_invariance),
    "speed": Step(title="tokens a second", run=speed.speed),
    "kills": Step(title="SIGKILL leaves the GPU empty", run=endings.kills),
    "thoughts": Step(title="labels, one thought, four thoughts", run=thoughts.thoughts),
}


def _reason(message: str) -> str:
    """One line of a message, which may end with a log: its last error, else its last line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("error:")]
    return " ".join(lines[starts[-1] if starts else -1 :])[:300] or "without a message"


def outcome_of(name: str, scene: Scene) -> Outcome:
    """Runs a step; whatever goes wrong is its outcome, and the next step can run."""
    begun = time.monotonic()
    figures: Mapping[str, Any] = {}
    status: Literal["passed", "failed", "not run"]
    try:
        finding = STEPS[name].run(scene)
        status, sentence = ("passed" if finding.held else "failed"), finding.sentence
        figures = finding.figures
    except NotRunError as exc:
        status, sentence = "not run", str(exc)
    except RefusedError as exc:
        status, sentence = "failed", f"the judge refused to start: {exc}"
    except (Exception, SystemExit) as exc:  # noqa: BLE001
        status, sentence = "failed", f"{type(exc).__name__}: {_reason(str(exc))}"
    if status == "failed":
        # The next step must not meet a broken judge.
        scene.close()
    return Outcome(
        name=name,
        status=status,
        sentence=sentence,
        figures=figures,
        seconds=time.monotonic() - begun,
    )
