"""vLLM's AsyncLLM as engines use it: the prompts of a call take turns with those of other calls."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    OverloadedError,
    RequestError,
)
from app.judges.engines.turns import Pace
from app.judges.engines.vllm_start import load
from app.ports import CallTimes, PromptError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

# Interval between two checks whether vLLM still runs.
_LOST_POLL_S = 0.25
# Prompts of a call that are tokenised in one step, before the first of them reaches vLLM.
TOKENISED_TOGETHER = 64

_Output = TypeVar("_Output")
# Indices of prompts -> token ids or error of each.
Tokenise = Callable[[Sequence[int]], Sequence[list[int] | RequestError]]
# Index of a prompt, its token ids, id and priority of its request -> vLLM's outputs, or its error.
Submit = Callable[[int, list[int], str, int], AsyncGenerator[_Output, None] | RequestError]


class VllmProcess:
    """One vLLM, whose scheduler runs in its own process; see `load`."""

    def __init__(self) -> None:
        self._engine: AsyncLLM | None = None
        self._request_ids = itertools.count()
        self._pace = Pace()

    def load(self, arguments: dict[str, Any], *, log_format: Literal["text", "json"]) -> "AsyncLLM":
        """Loads the model.

        Args:
            arguments: Arguments of `AsyncEngineArgs`.
            log_format: Format of vLLM's log lines.

        Raises:
            StartupError: vLLM cannot load the model.
        """
        # Assign directly to the attribute: this frame outlives the start, and an engine freed at
        # interpreter exit prints errors.
        self._engine = load(arguments, log_format=log_format)
        return self._engine

    def running(self) -> "AsyncLLM":
        """The loaded engine; raises EngineUnavailableError before `load` and after `stop`."""
        if self._engine is None:
            raise EngineUnavailableError("the judge is not running")
        return self._engine

    def stop(self) -> None:
        """Shuts down vLLM and its process; safe to call twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            # Must run on the event loop: from another thread, vLLM's own task would report a dead
            # engine.
            engine.shutdown()

    async def lost(self) -> str:
        """Waits until vLLM's process has died, which is final: vLLM does not restart it."""
        # vLLM has no callback for this, so the flag is polled.
        while self._engine is not None and not self._engine.errored:  # noqa: ASYNC110
            await asyncio.sleep(_LOST_POLL_S)
        return "vLLM's engine has died"

    async def run_all(
        self,
        order: Sequence[int],
        tokenise: Tokenise,
        submit: Submit[_Output],
        times: CallTimes,
    ) -> list[_Output | PromptError]:
        """Runs the prompts of one call.

        Args:
            order: The indices of the prompts in the order in which to submit them.
            tokenise: Called in a thread.
            submit: Called on the event loop.
            times: Receives the times of the call.

        Returns:
            For each prompt, by its index, vLLM's final output or the prompt's own error.

        Raises:
            UnavailableError: vLLM does not answer, or its queue is full.
        """
        tasks = {}
        try:
            with self._pace.call(len(order)) as turns:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(order), TOKENISED_TOGETHER):
                        chunk = order[start : start + TOKENISED_TOGETHER]
                        with times.rendering():
                            # Off the event loop: a long prompt takes milliseconds. The engine runs
                            # the prompts before these meanwhile.
                            rendered = await asyncio.to_thread(tokenise, chunk)
                        # `priority`: vLLM runs the smallest number first.
                        for turn, i, ids in zip(turns[start:], chunk, rendered, strict=False):
                            run = self._run(i, ids, submit, times, priority=turn)
                            tasks[i] = group.create_task(run)
        except ExceptionGroup as failures:
            # Callers catch our errors, not groups; the first failure is enough.
            raise failures.exceptions[0] from failures
        return [tasks[i].result() for i in range(len(order))]

    async def _run(
        self,
        i: int,
        ids: list[int] | RequestError,
        submit: Submit[_Output],
        times: CallTimes,
        *,
        priority: int,
    ) -> _Output | PromptError:
        """Runs one prompt: returns an error of this prompt, raises an error of the engine."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError
        from vllm.v1.engine.exceptions import EngineDeadError

        if isinstance(ids, RequestError):
            return ids
        outputs = submit(i, ids, f"s{next(self._request_ids)}", priority)
        if isinstance(outputs, RequestError):
            return outputs
        times.prompt_tokens += len(ids)
        last = None
        try:
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    last = output
            self._pace.note_done()
            times.note_answer()
            # Outputs of pooling models have no metrics.
            metrics = getattr(last, "metrics", None)
            if metrics is not None:
                times.note_wait(metrics.scheduled_ts - metrics.queued_ts)
        except EngineDeadError as exc:
            raise EngineUnavailableError("vLLM's engine has died", retry_after_s=30) from exc
        except GracefulHTTPError as exc:
            raise OverloadedError("vLLM's queue is full") from exc
        except (VLLMClientError, VLLMServerError) as exc:
            return JudgmentFailedError(f"vLLM gave no judgment ({type(exc).__name__})")
        return last or JudgmentFailedError("vLLM ended without an answer")
