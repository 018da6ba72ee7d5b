"""Makes the engine that the settings name."""

from collections.abc import Sequence
from pathlib import Path

from app.core.errors import StartupError
from app.judges.engines.openai_servers import Endpoints
from app.judges.scorer import JudgeKind
from app.ports import Engine, RewardModel
from app.settings import Settings

# Engines whose models run elsewhere, and so recover by themselves or do not.
_REMOTE = ("openai", "decisions")


def make_engine(settings: Settings) -> Engine:
    """The engine that SCOPE_ENGINE names, not yet started."""
    assert settings.engine != "decisions", "decision servers are a scorer of their own"
    if settings.engine == "scripted":
        from app.judges.engines.scripted import ScriptedEngine

        return ScriptedEngine(judge=settings.judge_name)
    if settings.engine == "openai":
        from app.judges.engines.openai_remote import OpenAiEngine

        return OpenAiEngine(Endpoints.of(settings), settings)
    from app.judges.engines.vllm_local import VllmEngine

    return VllmEngine(settings)


def make_reward_model(settings: Settings) -> RewardModel:
    """The reward model that SCOPE_MODEL names, not yet started."""
    refuse_without_effect(
        settings,
        ("prompt_file", "prefill", "min_label_mass", "scoring", "chat_template_kwargs"),
        why=f"{settings.judge_name} is a reward model, which reads a conversation and writes no "
        "label",
    )
    if settings.engine == "openai":
        from app.judges.engines.openai_reward import OpenAiRewardModel

        return OpenAiRewardModel(Endpoints.of(settings), settings)
    from app.judges.engines.vllm_reward import VllmRewardModel

    return VllmRewardModel(settings)


def refuse_without_effect(settings: Settings, names: Sequence[str], *, why: str) -> None:
    """Raises StartupError if a setting has a value that would have no effect."""
    for name in names:
        if getattr(settings, name) != Settings.model_fields[name].default:
            raise StartupError(f"SCOPE_{name.upper()} has no effect, because {why}: unset it")


def judge_kind(settings: Settings) -> JudgeKind:
    """The kind of the judge that the settings name; it is not loaded."""
    if settings.engine == "decisions":
        return "decision server"
    if reward_architecture(settings) is not None:
        return "reward model"
    kinds: dict[str, JudgeKind] = {
        "labels": "chat model",
        "votes": "chat model by votes",
        "thoughts": "chat model that thinks",
    }
    return kinds[settings.scoring]


def reward_architecture(settings: Settings) -> str | None:
    """The class of the model, if the judge is a reward model; otherwise None.

    A model on this machine is one if its config.json says so, and one on servers if
    SCOPE_OPENAI_SCORING does.

    Raises:
        StartupError: The hub does not provide the model, or no engine runs reward models of this
            class.
    """
    if settings.engine == "openai" and settings.openai_scoring == "rewards":
        return "served by SCOPE_OPENAI_URLS"
    if settings.engine != "vllm":
        return None
    from app.judges.engines.model_files import architecture_before_fetch

    architecture = architecture_before_fetch(settings)
    if architecture.endswith("RewardModel"):
        raise StartupError(
            f"SCOPE_MODEL={settings.model} has the class {architecture}, which scores each token: "
            "use a reward model with a class ...ForSequenceClassification and one output"
        )
    return architecture if architecture.endswith("ForSequenceClassification") else None


def fetch_model(settings: Settings) -> Path:
    """Fetches the files of the judge's model where they are missing; returns their folder."""
    if settings.engine != "vllm":
        raise StartupError(f"SCOPE_ENGINE={settings.engine} loads no weights")
    from app.judges.engines.model_files import model_folder

    return model_folder(settings)


def restarts_judge(settings: Settings) -> bool:
    """Whether a new process has a new judge; servers elsewhere recover by themselves, or do not."""
    return settings.engine not in _REMOTE
