"""The calls of a judge's model: their number, time and errors, the use of each key, and the end."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from app.core.errors import EngineUnavailableError, UnavailableError
from app.flow import CURRENT_FLOW
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, FailStop


@contextmanager
def observed_call(
    telemetry: Telemetry,
    times: CallTimes,
    *,
    comparisons: int,
    prompts: int,
) -> Iterator[None]:
    """Observes the call of the model that its block makes.

    Args:
        telemetry: Receives counts, times and errors.
        times: The times of the call, into which the engine writes.
        comparisons: Number of comparisons of the call.
        prompts: Number of prompts that the model reads for them.
    """
    telemetry.engine_prompts.inc(prompts)
    times.on_answer = telemetry.note_answer
    flow = CURRENT_FLOW.get()
    telemetry.count_use(flow.key, comparisons=comparisons)
    flow.usage.engine_prompts += prompts
    rendered_s, begun = times.render_s, time.perf_counter()
    try:
        yield
        times.note_answer()
    except UnavailableError as exc:
        if isinstance(exc, EngineUnavailableError):
            telemetry.forget_answer()
        telemetry.engine_errors.labels(exc.code).inc()
        raise
    finally:
        telemetry.count_use(flow.key, prompt_tokens=times.prompt_tokens)
        flow.usage.prompt_tokens += times.prompt_tokens
        call_s = time.perf_counter() - begun
        # The engine adds its tokenizing to `render_s`; subtract only that part.
        model_s = call_s - (times.render_s - rendered_s) - times.queue_s
        telemetry.stage_seconds.labels("render").observe(times.render_s)
        telemetry.stage_seconds.labels("queue").observe(times.queue_s)
        telemetry.stage_seconds.labels("engine").observe(max(0.0, model_s))


async def lost(model: object) -> str:
    """Waits until a model has failed for good; forever if it always recovers."""
    if isinstance(model, FailStop):
        return await model.lost()
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never
