"""The file of outcomes, docs/measured/gpu.json, and the section of the page made from it."""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from tests.benchmarks.measured import about
from tests.drills.gpu.steps import STEPS, Outcome
from tests.drills.running import MEASURED

FILE = MEASURED / "gpu.json"
PAGE = MEASURED.parent / "design" / "gpu.md"
_FACTS = ("made", "commit", "machine", "versions")


class Record:
    """The outcomes of the last run on a GPU, and of the last rehearsal on a CPU.

    Args:
        file: The file; it need not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._runs: dict[str, Any] = {"gpu": None, "cpu": None}
        if file.exists():
            self._runs |= json.loads(file.read_text(encoding="utf-8"))

    def begin(self, device: Literal["gpu", "cpu"]) -> None:
        """Begins a run; steps that it does not run keep their outcomes, with their own commit."""
        facts = about(repeats=1, quick=False)
        steps = (self._runs[device] or {}).get("steps", {})
        self._runs[device] = {key: facts[key] for key in _FACTS} | {"steps": steps}

    def take(self, device: Literal["gpu", "cpu"], outcome: Outcome) -> None:
        """Adds the outcome of a step and writes the file."""
        run = self._runs[device]
        entry = asdict(outcome) | {key: run[key] for key in ("made", "commit")}
        run["steps"][entry.pop("name")] = entry
        text = json.dumps(self._runs, indent=1, allow_nan=False, default=str)
        self._file.write_text(text + "\n", encoding="utf-8")

    def results(self) -> str:
        """The outcomes, in Markdown."""
        gpu, cpu = self._runs["gpu"], self._runs["cpu"]
        parts = ["## On a GPU\n"]
        if gpu is None:
            parts.append("**No GPU run exists yet.**\n")
        else:
            parts.append(_section(gpu))
        if cpu is not None:
            passed = sum(step["status"] == "passed" for step in cpu["steps"].values())
            parts.append(
                f"With a tiny judge, {passed} of {len(STEPS)} steps passed on the CPU build.\n"
                "This shows that the checks work, and nothing about a GPU.\n"
            )
        return "\n".join(parts)


def _section(run: Mapping[str, Any]) -> str:
    machine, steps = run["machine"], run["steps"]
    gpus = (steps.get("machine") or {}).get("figures", {}).get("gpus") or []
    named = ", ".join(gpu["name"] for gpu in gpus) or f"{machine['cpu']}, without a GPU"
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    status = {name: steps[name]["status"] if name in steps else "not run" for name in STEPS}
    passed = sum(each == "passed" for each in status.values())
    others = [
        f'"{STEPS[name].title}" ({each})' for name, each in status.items() if each != "passed"
    ]
    text = (
        f"{passed} of {len(STEPS)} steps passed on {run['made'][:10]}: {named}, "
        f"{machine['cores']} cores; {versions}. `docs/measured/gpu.json` has what they found."
    )
    text += f" Not passed: {', '.join(others)}." if others else ""
    text += f" {run['note']}" if "note" in run else ""
    return textwrap.fill(text, 100, break_on_hyphens=False) + "\n"
