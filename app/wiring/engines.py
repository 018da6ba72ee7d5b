"""Makes the engine that the settings name."""

from pathlib import Path

from app.core.errors import StartupError
from app.ports import Engine
from app.settings import Settings

DEMO = "demo"
DEMO_FOLDER = Path(__file__).parents[1] / "demo"


def make_engine(settings: Settings) -> Engine:
    """The engine that SCOPE_ENGINE names, not yet started.

    Raises:
        StartupError: The settings contradict each other.
    """
    if settings.engine == "scripted":
        from app.engines.scripted import ScriptedEngine

        return ScriptedEngine(judge=judge_name(settings))
    if settings.engine == "openai":
        return _openai_engine(settings)
    if settings.engine == "transformers":
        from app.engines.transformers_reference import TransformersEngine, TransformersOptions

        return TransformersEngine(
            TransformersOptions(
                model=_folder_or_id(settings.model),
                judge=judge_name(settings),
                revision=settings.revision,
                dtype=settings.dtype,
                max_model_len=settings.max_model_len,
            )
        )
    from app.engines.vllm_local import VllmEngine
    from app.engines.vllm_start import VllmOptions

    options = VllmOptions(
        model=_folder_or_id(settings.model),
        judge=judge_name(settings),
        revision=settings.revision,
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        tensor_parallel_size=settings.tensor_parallel,
        gpu_memory_utilization=settings.gpu_memory,
        cpu_kv_cache_bytes=settings.cpu_kv_cache_mb * 2**20,
        metrics=settings.engine_metrics,
        arguments=settings.vllm_args,
        log_format=settings.log_format,
        reports_start=settings.log_level in ("debug", "info"),
    )
    return VllmEngine(options)


def fetch_model(settings: Settings) -> Path:
    """Fetches the files of the judge's model where they are missing; returns their folder.

    Raises:
        StartupError: The engine runs no model here, or the hub does not provide the model.
    """
    if settings.engine not in ("vllm", "transformers"):
        raise StartupError(f"SCOPE_ENGINE={settings.engine} loads no weights")
    from app.engines.model_files import model_folder

    return model_folder(_folder_or_id(settings.model), revision=settings.revision)


def _openai_engine(settings: Settings) -> Engine:
    from app.engines.openai_remote import OpenAiEngine, OpenAiOptions
    from app.engines.openai_servers import Endpoints, parse_urls

    if settings.revision is not None:
        raise StartupError(
            "SCOPE_REVISION has no effect with SCOPE_ENGINE=openai, because the servers have "
            "already loaded a revision: unset it"
        )
    key = settings.openai_api_key
    return OpenAiEngine(
        OpenAiOptions(
            endpoints=Endpoints(
                urls=parse_urls(settings.openai_urls),
                api_key=key.get_secret_value().strip() if key else "",
                timeout_s=settings.openai_timeout_s,
            ),
            model=settings.model,
            judge=judge_name(settings),
            tokenizer=_folder_or_id(settings.tokenizer or settings.model),
            scoring=settings.openai_scoring,
            max_model_len=settings.max_model_len,
        )
    )


def is_demo_judge(settings: Settings) -> bool:
    """Whether the settings name the bundled judge as it is shipped, on vLLM."""
    return settings.engine == "vllm" and settings.model == DEMO


def restarts_judge(settings: Settings) -> bool:
    """Whether a new process has a new judge; servers elsewhere recover by themselves, or do not."""
    return settings.engine != "openai"


def judge_name(settings: Settings) -> str:
    """The judge's name in answers: the name of a folder, or the id of a model on the hub."""
    if settings.engine == "scripted":
        return settings.engine
    path = Path(settings.model)
    return path.name if settings.model != DEMO and path.is_dir() else settings.model


def _folder_or_id(model: str) -> str:
    return str(DEMO_FOLDER / "model") if model == DEMO else model
