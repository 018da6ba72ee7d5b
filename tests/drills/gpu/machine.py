"""The machine: driver, GPU, compiler, and the one vLLM that is installed."""

import os
import shutil
import sysconfig
from pathlib import Path

from app.judges.engines.vllm_build import gpu_fault, installed_builds, visible_gpus
from tests.drills.gpu.scene import Finding, NotRunError, Scene


def driver_and_compiler(scene: Scene) -> Finding:
    """Step 1: what vLLM needs of a machine is there."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "gcc"), "clang"))), None)
    headers = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    missing = [] if compiler else ["a C compiler"]
    missing += [] if headers.is_file() else [str(headers)]
    if not scene.gpus:
        raise NotRunError(
            f"no GPU answers nvidia-smi; of the rest, {' and '.join(missing) or 'nothing'} is "
            "missing"
        )
    gpus = visible_gpus()
    fault = None if gpus is None else gpu_fault(gpus, wanted=1)
    named = ", ".join(f"{gpu['name']} ({gpu['compute_cap']})" for gpu in scene.gpus)
    return Finding(
        sentence=fault
        or f"{named}, driver {scene.gpus[0]['driver_version']}"
        + (f"; missing: {', '.join(missing)}" if missing else ", compiler and headers"),
        held=fault is None and not missing,
        figures={"gpus": scene.gpus, "compiler": compiler},
    )


def one_build(scene: Scene) -> Finding:
    """Step 2: one distribution of vLLM, and its torch sees the GPUs."""
    import torch

    builds = installed_builds()
    facts = {"builds": dict(builds), "torch": torch.__version__, "cuda": torch.version.cuda}
    named = ", ".join(f"{name} {version}" for name, version in builds.items())
    if scene.device == "cpu":
        return Finding(
            sentence=f"{named} alone, with torch {torch.__version__}; a CPU build has no CUDA",
            held=len(builds) == 1 and torch.version.cuda is None,
            figures=facts,
        )
    count = torch.cuda.device_count()
    return Finding(
        sentence=f"{named} alone, with torch {torch.__version__}; {count} GPUs",
        held=len(builds) == 1 and count > 0,
        figures={**facts, "count": count},
    )
