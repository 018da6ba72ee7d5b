"""Opens the scorer that the settings name: chat models, reward models, decision servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from app.core.cascade import PAC_ONLY
from app.core.errors import StartupError
from app.flow import off_loop
from app.judges.cascade import CascadeScorer, EscalationShare, LargeJudge
from app.judges.decision_servers import DecisionScorer
from app.judges.engines.openai_servers import Endpoints
from app.judges.label_logits import LabelLogitScorer, with_found_prefill
from app.judges.prompts import PromptTemplate, load_template
from app.judges.reward_model import RewardModelScorer
from app.judges.scorer import Scorer
from app.judges.thoughts import ThoughtScorer
from app.judges.votes import VoteScorer
from app.observability.telemetry import Telemetry
from app.ports import ANY_LENGTH, Engine, OnStage
from app.settings import Settings
from app.wiring.engines import (
    make_engine,
    make_reward_model,
    reward_architecture,
)
from app.wiring.startup import StartupObserver, bundled_comparisons

S = TypeVar("S")

# Answers in each order, and the temperature of answers and thoughts, where the settings leave them.
_VOTES, _TEMPERATURE = 16, 1.0
# Bundled pairs by which the start looks whether the judge needs a prefill.
_PREFILL_PAIRS = 8

# Returns the key by which ties of votes are broken.
TieKey = Callable[[], Awaitable[bytes]]


def open_scorer(
    settings: Settings,
    observer: StartupObserver,
    *,
    telemetry: Telemetry,
    new_engine: Callable[[Settings], Engine] | None = None,
    template: PromptTemplate | None = None,
    tie_key: TieKey = lambda: asyncio.sleep(0, b""),
) -> AbstractAsyncContextManager[Scorer]:
    """Loads the judge that the settings name, and stops it when the block ends.

    Args:
        settings: Settings of the judge, which are checked at once.
        observer: Receives the progress of the start.
        telemetry: Observes the judge's calls.
        new_engine: Makes the engine of a chat model; None for `make_engine`.
        template: Template of a chat model's prompts; None for the one of the settings.
        tie_key: The key by which ties of votes are broken; all processes with the same sets need
            the same.

    Raises:
        StartupError: The settings are wrong, or, in the block, the model cannot be loaded.
    """
    if settings.engine == "decisions":
        servers = _decision_scorer(settings, telemetry)
        return _connected(servers, observer, f"Connecting to judge {settings.judge_name}")
    prompts = template or load_template(settings.prompt_file, prefill=settings.prefill)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scorer]:
        architecture = await asyncio.to_thread(reward_architecture, settings)
        start: Callable[..., Awaitable[Scorer]]
        stage = f"Loading judge {settings.judge_name}"
        if architecture is not None:
            model = make_reward_model(settings)
            stage += f", a reward model ({architecture})"
            start = partial(RewardModelScorer.start, model, telemetry=telemetry)
            async with _started(start, model.stop, observer, stage) as scorer:
                yield scorer
            return
        engine = (new_engine or make_engine)(settings)
        start = partial(_start_chat_model, engine, prompts, settings, tie_key, telemetry)
        async with _started(start, engine.stop, observer, stage) as scorer:
            if template is None and isinstance(scorer, LabelLogitScorer):
                scorer = await _with_prefill(scorer, observer)
            yield scorer

    return opened()


@asynccontextmanager
async def _connected(
    servers: DecisionScorer, observer: StartupObserver, stage: str
) -> AsyncIterator[Scorer]:
    async with _started(servers.start, servers.stop, observer, stage):
        observer.note(servers.in_words)
        yield servers


async def _start_chat_model(
    engine: Engine,
    prompts: PromptTemplate,
    settings: Settings,
    tie_key: TieKey,
    telemetry: Telemetry,
    *,
    on_stage: OnStage,
) -> Scorer:
    if settings.scoring == "labels":
        return await LabelLogitScorer.start(engine, prompts, telemetry=telemetry, on_stage=on_stage)
    temperature = settings.temperature or _TEMPERATURE
    if settings.scoring == "votes":
        return await VoteScorer.start(
            engine,
            prompts,
            samples=settings.samples or _VOTES,
            temperature=temperature,
            tie_key=await tie_key(),
            telemetry=telemetry,
            on_stage=on_stage,
        )
    return await ThoughtScorer.start(
        engine,
        prompts,
        samples=settings.samples,
        max_tokens=settings.think_tokens,
        temperature=temperature,
        timeout_s=settings.timeout_s,
        tie_key=await tie_key(),
        telemetry=telemetry,
        on_stage=on_stage,
    )


async def _with_prefill(scorer: LabelLogitScorer, observer: StartupObserver) -> LabelLogitScorer:
    comparisons = await off_loop(bundled_comparisons)
    found = await with_found_prefill(scorer, comparisons[:_PREFILL_PAIRS])
    if found is not scorer:
        prefill = found.template.prefill
        observer.note(
            f'This judge answers with a label after "{prefill}" and not without, so its answers '
            f'begin with it, as with SCOPE_PREFILL="{prefill}"'
        )
    return found


def _decision_scorer(settings: Settings, telemetry: Telemetry) -> DecisionScorer:
    for name in ("prompt_file", "prefill", "scoring", "chat_template_kwargs"):
        if getattr(settings, name) != Settings.model_fields[name].default:
            raise StartupError(
                f"SCOPE_{name.upper()} has no effect with SCOPE_ENGINE=decisions, because the "
                "servers write the prompt and give probabilities: unset it"
            )
    return DecisionScorer(
        Endpoints.of(settings),
        model=settings.model,
        judge=settings.judge_name,
        # Only the servers tokenize a prompt.
        max_prompt_tokens=settings.max_model_len or ANY_LENGTH,
        telemetry=telemetry,
    )


@asynccontextmanager
async def open_cascade(
    settings: Settings,
    opening: AbstractAsyncContextManager[Scorer],
    observer: StartupObserver,
    telemetry: Telemetry,
) -> AsyncIterator[Scorer]:
    """Puts the judge that is opened before the one of SCOPE_ESCALATE_URL.

    Raises:
        StartupError: The large judge does not answer, or a setting contradicts the cascade.
    """
    if "default_guarantee" in settings.model_fields_set and settings.default_guarantee != "pac":
        raise StartupError(f"SCOPE_DEFAULT_GUARANTEE: {PAC_ONLY}")
    key = settings.escalate_api_key
    endpoints = Endpoints(
        urls=(settings.escalate_url.rstrip("/"),),
        api_key="" if key is None else key.get_secret_value(),
        # The rest is for the small judge, and for the abstention if there is no answer.
        timeout_s=0.8 * settings.timeout_s,
        settings=("SCOPE_ESCALATE_URL", "SCOPE_ESCALATE_API_KEY"),
        example="http://host:8000",
    )
    large = LargeJudge(endpoints)
    stage = "Asking the large judge"
    async with (
        _started(large.start, large.stop, observer, stage),
        opening as small,
    ):
        observer.note(f"The judge is a cascade: {small.identity.name}, then {large.identity.name}")
        yield CascadeScorer(
            small=small,
            large=large,
            share=EscalationShare(settings.escalate_max_share),
            telemetry=telemetry,
        )


@asynccontextmanager
async def _started(
    start: Callable[..., Awaitable[S]],
    stop: Callable[[], Awaitable[None]],
    observer: StartupObserver,
    stage: str,
) -> AsyncIterator[S]:
    """Starts a scorer, shows the progress, and stops its model, also after a failed start."""
    observer.stage(stage)
    try:
        yield await start(on_stage=lambda part: observer.stage(f"{stage}: {part}"))
    finally:
        await stop()
