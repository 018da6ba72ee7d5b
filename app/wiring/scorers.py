"""Opens the scorer that the settings name: one function for each kind of judge."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from app.observability.telemetry import Telemetry
from app.observability.tracing import Tracing
from app.ports import Engine
from app.service.scoring.label_logits import LabelLogitScorer
from app.service.scoring.prompts import PromptTemplate, load_template
from app.service.scoring.scorer import Scorer
from app.settings import Settings
from app.wiring.engines import judge_name, make_engine
from app.wiring.startup import StartupObserver


def open_scorer(
    settings: Settings,
    observer: StartupObserver,
    *,
    telemetry: Telemetry,
    tracing: Tracing | None = None,
    new_engine: Callable[[Settings], Engine] | None = None,
) -> AbstractAsyncContextManager[Scorer]:
    """Loads the judge that the settings name, and stops it when the block ends.

    Args:
        settings: Settings of the judge.
        observer: Receives the progress of the start.
        telemetry: Observes the judge's calls.
        tracing: Makes spans of the judge's calls; None without traces.
        new_engine: Makes the engine of a chat model; None for `make_engine`.

    Raises:
        StartupError: The settings are wrong, or the model cannot be loaded.
    """
    return open_chat_model(
        settings,
        load_template(settings.prompt_file, prefill=settings.prefill),
        observer,
        telemetry=telemetry,
        tracing=tracing,
        new_engine=new_engine,
    )


@asynccontextmanager
async def open_chat_model(
    settings: Settings,
    template: PromptTemplate,
    observer: StartupObserver,
    *,
    telemetry: Telemetry | None = None,
    tracing: Tracing | None = None,
    new_engine: Callable[[Settings], Engine] | None = None,
) -> AsyncIterator[LabelLogitScorer]:
    """Loads a chat model with any template; see `open_scorer`."""
    engine = (new_engine or make_engine)(settings)
    name = judge_name(settings)
    observer.stage(f"Loading judge {name}")
    try:
        yield await LabelLogitScorer.start(
            engine,
            template,
            telemetry=telemetry or Telemetry.on_own_registry(),
            tracing=tracing,
            on_stage=lambda stage: observer.stage(f"Loading judge {name}: {stage}"),
        )
    finally:
        await engine.stop()
