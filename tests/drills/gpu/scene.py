"""The machine of a run, and the judge that its steps share."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from app.demo.pairs import pairs as made_pairs
from app.judges.engines.vllm_build import is_cpu_build
from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks.processes import Process, Worker
from tests.benchmarks.texts import Pair
from tests.drills.gpu.made import made_checkpoint

# vLLM logs its backends and its cache at this level.
_LOGS = {"VLLM_LOGGING_LEVEL": "INFO"}
# The last line of a traceback, also where vLLM logs it.
_CAUSE = re.compile(r"(?:^|\] )([A-Z]\w*(?:Error|Exception): .+)$", re.MULTILINE)


class NotRunError(Exception):
    """This machine cannot run the step; the message says why."""


class RefusedError(Exception):
    """A judge refused to start; the message is its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of a step.

    Args:
        sentence: The outcome in one line.
        held: Whether the promise of the step holds.
        figures: Measured numbers and facts by name.
    """

    sentence: str
    held: bool = True
    figures: Mapping[str, Any] = field(default_factory=dict)


class Engine(Worker):
    """The engine of a judge in a process, with the judge's facts in `started`."""

    def __init__(
        self, folder: Path, name: str, options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        command = [sys.executable, "-m", "tests.drills.gpu.engine_worker", json.dumps(options)]
        Process.__init__(self, folder, name, command, {**_LOGS, **environment})
        try:
            self.started = self._answer()
        except BaseException:
            self.stop()
            raise

    def gaps(self, pairs: Sequence[Pair], *, together: int, forget: bool = False) -> dict[str, Any]:
        """Logit gaps of both orders.

        Raises:
            RuntimeError: A prompt was not judged.
        """
        found = self.ask(what="gaps", pairs=pairs, together=together, forget=forget)
        if "failed" in found:
            raise RuntimeError(found["failed"])
        return found


@dataclass
class Scene:
    """The machine of a run, its folder, and the engine that steps share.

    Args:
        folder: Folder for logs, caches and made models.
        small: Whether this is a rehearsal with tiny models and few pairs.
        model: Folder of the user's judge; None for a made one.
        on_stage: Receives a description of each stage when it begins.
    """

    folder: Path
    small: bool
    model: Path | None = None
    on_stage: Callable[[str], None] = lambda text: None
    _engine: Engine | None = None
    _key: object = None
    _count: int = 0

    @cached_property
    def device(self) -> Literal["gpu", "cpu"]:
        return "cpu" if is_cpu_build() else "gpu"

    @cached_property
    def gpus(self) -> list[dict[str, str]]:
        """Name, memory, driver and capability of each GPU; none without nvidia-smi."""
        fields = ("name", "memory.total", "driver_version", "compute_cap")
        if shutil.which("nvidia-smi") is None:
            return []
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if said.returncode:
            return []
        return [
            dict(zip(fields, map(str.strip, line.split(",")), strict=True))
            for line in said.stdout.splitlines()
        ]

    @property
    def memory_bytes(self) -> float:
        """Memory of the first GPU."""
        return float(self.gpus[0]["memory.total"].split()[0]) * 2**20 if self.gpus else 0.0

    @cached_property
    def judge(self) -> Path:
        """The judge of the steps about scores: the user's, else one with random weights."""
        if self.small:
            return DEMO_FOLDER / "model"
        if self.model is not None:
            return self.model
        self.on_stage("making a judge of 0.5B parameters")
        return made_checkpoint(self.folder / "made-0.5B", "0.5B")

    @property
    def judge_name(self) -> str:
        """The judge of the steps about scores, for people."""
        if self.small:
            return "the demo judge"
        return self.model.name if self.model is not None else "a judge of 0.5B random parameters"

    def pairs(self, count: int, *, seed: int = 26) -> list[Pair]:
        """Pairs of the demo judge's families."""
        drawn = itertools.islice(made_pairs(seed, held_out=True), count)
        return [Pair(p.question, p.response_a, p.response_b) for p in drawn]

    def engine(
        self, model: Path, *, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Engine:
        """The engine of a model; it stays until another one is needed.

        Raises:
            RefusedError: The judge refuses to start.
        """
        key = (str(model), sorted((environment or {}).items()), json.dumps(options, sort_keys=True))
        if self._engine is None or self._key != key:
            self.close()
            self.on_stage(f"starting {model.name}")
            self._count += 1
            given = {"model": str(model), **options}
            engine = Engine(self.folder, f"engine-{self._count}", given, environment or {})
            if "refused" in engine.started:
                engine.stop()
                raise RefusedError(with_cause(engine.started["refused"], engine.log.read_text()))
            self._engine, self._key = engine, key
        return self._engine

    def close(self) -> None:
        """Ends the engine, so that the GPU is free."""
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    def own_folder(self) -> Path:
        """A new folder for a step that starts judges of its own, while no other runs."""
        self.close()
        self._count += 1
        folder = self.folder / f"step-{self._count}"
        folder.mkdir()
        return folder


def with_cause(refusal: str, log: str) -> str:
    """A refusal with its cause from the log, where vLLM only says that there is one."""
    if "root cause" not in refusal:
        return refusal
    causes = [found[1] for found in _CAUSE.finditer(log) if "root cause" not in found[1]]
    return f"vLLM ended: {causes[-1]}" if causes else refusal


def user_model() -> Path | None:
    """The folder of the judge that SCOPE_MODEL names; None without it.

    Raises:
        StartupError: There is no such model.
    """
    from app.judges.engines.model_files import model_folder

    name = os.environ.get("SCOPE_MODEL")
    if not name or name == "demo":
        return None
    return model_folder(name, revision=os.environ.get("SCOPE_REVISION"))
