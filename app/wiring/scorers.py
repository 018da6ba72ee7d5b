"""Opens the scorer that the settings name: chat models, reward models, decision servers."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

from app.core.cascade import PAC_ONLY
from app.core.errors import StartupError
from app.flow import off_loop
from app.judges.cascade import CascadeScorer, EscalationShare, LargeJudge
from app.judges.decision_servers import DecisionScorer
from app.judges.engines.openai_servers import Endpoints
from app.judges.label_logits import ChatScorer, LabelLogitScorer
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
    refuse_without_effect,
    reward_architecture,
)
from app.wiring.startup import StartupObserver, bundled_comparisons


class _Starts(Protocol):
    async def start(self, on_stage: OnStage) -> object: ...

    async def stop(self) -> None: ...


S = TypeVar("S", bound=_Starts)

# Votes in each order, where the settings leave them.
_VOTES = 16
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
        new_engine: Makes the engine of a chat model; None for `make_engine`.
        template: Template of a chat model's prompts; None for the one of the settings.
        tie_key: The key by which ties of votes are broken; all processes with the same sets need
            the same.

    Raises:
        StartupError: The settings are wrong, or, in the block, the model cannot be loaded.
    """
    if settings.engine == "decisions":
        servers = _decision_scorer(settings, telemetry)
        return _started(servers, observer, f"Connecting to judge {settings.judge_name}")
    prompts = template or load_template(settings.prompt_file, prefill=settings.prefill)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scorer]:
        architecture = await asyncio.to_thread(reward_architecture, settings)
        stage = f"Loading judge {settings.judge_name}"
        scorer: ChatScorer | RewardModelScorer
        if architecture is not None:
            stage += f", a reward model ({architecture})"
            scorer = RewardModelScorer(make_reward_model(settings), telemetry)
        else:
            engine = (new_engine or make_engine)(settings)
            scorer = await _chat_scorer(engine, prompts, settings, tie_key, telemetry)
        async with _started(scorer, observer, stage):
            if template is None and isinstance(scorer, LabelLogitScorer):
                await _find_prefill(scorer, observer)
            yield scorer

    return opened()


async def _chat_scorer(
    engine: Engine,
    prompts: PromptTemplate,
    settings: Settings,
    tie_key: TieKey,
    telemetry: Telemetry,
) -> LabelLogitScorer | VoteScorer | ThoughtScorer:
    if settings.scoring == "labels":
        return LabelLogitScorer(engine=engine, template=prompts, telemetry=telemetry)
    if settings.scoring == "votes":
        return VoteScorer(
            engine=engine,
            template=prompts,
            samples=settings.samples or _VOTES,
            temperature=settings.temperature,
            tie_key=await tie_key(),
            telemetry=telemetry,
        )
    return ThoughtScorer(
        engine=engine,
        template=prompts,
        samples=settings.samples or 0,
        max_tokens=settings.think_tokens,
        temperature=settings.temperature,
        timeout_s=settings.timeout_s,
        tie_key=await tie_key(),
        telemetry=telemetry,
    )


async def _find_prefill(scorer: LabelLogitScorer, observer: StartupObserver) -> None:
    comparisons = await off_loop(bundled_comparisons)
    if await scorer.find_prefill(comparisons[:_PREFILL_PAIRS]):
        prefill = scorer.template.prefill
        observer.note(
            f'This judge answers with a label after "{prefill}" and not without, so its answers '
            f'begin with it, as with SCOPE_PREFILL="{prefill}"'
        )


def _decision_scorer(settings: Settings, telemetry: Telemetry) -> DecisionScorer:
    refuse_without_effect(
        settings,
        ("prompt_file", "prefill", "scoring", "chat_template_kwargs"),
        why="decision servers write the prompt and give probabilities",
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
    """Puts the judge that is opened before the one of SCOPE_ESCALATE_URL."""
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
    async with (
        _started(LargeJudge(endpoints), observer, "Asking the large judge") as large,
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
async def _started(scorer: S, observer: StartupObserver, stage: str) -> AsyncIterator[S]:
    """Starts a scorer, shows the progress, and stops its model, also after a failed start."""
    observer.stage(stage)
    try:
        # The collector would visit the million objects of vLLM's modules again and again.
        gc.disable()
        try:
            await scorer.start(lambda part: observer.stage(f"{stage}: {part}"))
        finally:
            gc.enable()
        if "vllm" in sys.modules:
            gc.freeze()
        yield scorer
    finally:
        await scorer.stop()
