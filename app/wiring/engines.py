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
    )
    return VllmEngine(options)


def _openai_engine(settings: Settings) -> Engine:
    from app.engines.openai_pool import parse_urls
    from app.engines.openai_remote import OpenAiEngine, OpenAiOptions

    if settings.revision is not None:
        raise StartupError(
            "SCOPE_REVISION has no effect with SCOPE_ENGINE=openai, because the servers have "
            "already loaded a revision: unset it"
        )
    key = settings.openai_api_key
    return OpenAiEngine(
        OpenAiOptions(
            urls=parse_urls(settings.openai_urls),
            model=settings.model,
            judge=judge_name(settings),
            tokenizer=_folder_or_id(settings.tokenizer or settings.model),
            api_key=key.get_secret_value().strip() if key else "",
            scoring=settings.openai_scoring,
            timeout_s=settings.openai_timeout_s,
            max_model_len=settings.max_model_len,
        )
    )


def judge_name(settings: Settings) -> str:
    """The judge's name in answers: the name of a folder, or the id of a model on the hub."""
    if settings.engine == "scripted":
        return settings.engine
    path = Path(settings.model)
    return path.name if settings.model != DEMO and path.is_dir() else settings.model


def _folder_or_id(model: str) -> str:
    return str(DEMO_FOLDER / "model") if model == DEMO else model
