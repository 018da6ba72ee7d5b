"""The machine: driver, GPU, compiler, and the one vLLM that is installed."""

import os
import shutil
import sysconfig
from pathlib import Path

from app.judges.engines.vllm_build import gpu_fault, installed_builds, visible_gpus
from tests.drills.gpu.scene import Finding, Scene


def machine(scene: Scene) -> Finding:
    """Step 1: what vLLM needs of a machine is there, and one build of vLLM."""
    import torch

    builds = installed_builds()
    named = ", ".join(f"{name} {version}" for name, version in builds.items())
    faults = [] if len(builds) == 1 else ["not exactly one vLLM"]
    if scene.device == "gpu":
        compiler = any(map(shutil.which, (os.environ.get("CC", "gcc"), "clang")))
        headers = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
        faults += [] if compiler else ["no C compiler"]
        faults += [] if headers.is_file() else [f"no {headers}"]
        gpus = visible_gpus()
        fault = None if gpus is None else gpu_fault(gpus, wanted=1)
        faults += [] if fault is None else [fault]
    cards = ", ".join(f"{gpu['name']}, driver {gpu['driver_version']}" for gpu in scene.gpus)
    found = f"{cards or 'no GPU'}; {named} with torch {torch.__version__}"
    return Finding(
        sentence="; ".join([found, *faults]),
        held=not faults,
        figures={"gpus": scene.gpus, "builds": dict(builds), "torch": torch.__version__},
    )
