"""vLLM's AsyncLLM as engines use it: the prompts of a call take turns with those of other calls."""

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    OverloadedError,
    RequestError,
    StartupError,
)
from app.judges.engines.descendants import bound_children
from app.judges.engines.turns import Pace
from app.judges.engines.vllm_start import (
    BATCHED_TOKENS,
    engine_arguments,
    import_vllm,
    inspect_model,
)
from app.ports import CallTimes, OnStage, PromptError, is_ahead
from app.settings import Settings

if TYPE_CHECKING:
    from vllm.config import ModelConfig
    from vllm.v1.engine.async_llm import AsyncLLM

# Interval between two checks whether vLLM still runs.
_LOST_POLL_S = 0.25
# Prompts of a call that are tokenized in one step, before the first of them reaches vLLM.
_TOKENISED_TOGETHER = 64

_Output = TypeVar("_Output")
_Prompt = TypeVar("_Prompt")
# Prompts -> token ids or error of each.
Tokenize = Callable[[Sequence[_Prompt]], Sequence[list[int] | RequestError]]
# Index of a prompt, its token ids, and arguments of vLLM's request -> vLLM's outputs, or its error.
Submit = Callable[[int, list[int], dict[str, Any]], AsyncGenerator[_Output, None] | RequestError]


def rank_of(question: str, unread: Sequence[int]) -> int:
    """The copy of the model, which vLLM calls a rank, for the prompts of a question.

    A hash of the question names it, so that its cache has their beginning in later calls, too. A
    second rank takes them if the first is more than two steps behind it, by the tokens that each
    has still to read.
    """
    count = len(unread)
    if count == 1:
        return 0
    digest = hashlib.blake2b(question.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    first = int.from_bytes(digest[:8]) % count
    # Never the first one again.
    second = (first + 1 + int.from_bytes(digest[8:]) % (count - 1)) % count
    behind = unread[first] - unread[second] > 2 * BATCHED_TOKENS
    return second if behind else first


class VllmProcess:
    """One vLLM, whose scheduler runs in its own process."""

    def __init__(self) -> None:
        self._engine: AsyncLLM | None = None
        self._request_ids = itertools.count()
        self._pace = Pace()
        # Tokens that each rank has still to read; see `rank_of`.
        self._unread = [0]

    def load(
        self,
        settings: Settings,
        folder: Path,
        *,
        on_stage: OnStage,
        **changed: Any,
    ) -> "ModelConfig":
        """Loads the model.

        Args:
            changed: Arguments of `AsyncEngineArgs` for this kind of model; None removes ours.
        """
        arguments = engine_arguments(settings, folder)
        for name, value in changed.items():
            if value is not None:
                arguments[name] = value
            elif name not in settings.vllm_args:
                arguments.pop(name, None)
        import_vllm()
        inspect_model(folder)
        on_stage("loading the weights")
        from vllm.config.logging import LoggingConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            # The kernel kills the children when the thread that made them ends. This thread runs
            # the engine's event loop, so it does not end before the engine.
            with bound_children():
                self._engine = AsyncLLM.from_engine_args(
                    AsyncEngineArgs(
                        **arguments, logging_config=LoggingConfig(formatter=settings.log_format)
                    ),
                    # As many sequences in a batch as vLLM's own server has on this GPU. Its batches
                    # of 2,048 tokens on an A100 are small for judging: `engine_arguments` sets
                    # 8,192.
                    usage_context=UsageContext.OPENAI_API_SERVER,
                )
        except (ValueError, TypeError, RuntimeError, OSError) as exc:
            raise StartupError(f"vLLM could not load {folder}: {exc}") from exc
        self._unread = [0] * arguments["data_parallel_size"]
        return self._engine.vllm_config.model_config

    def running(self) -> "AsyncLLM":
        """The loaded engine; raises EngineUnavailableError before `load` and after `stop`."""
        if self._engine is None:
            raise EngineUnavailableError("the judge is not running")
        return self._engine

    def stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            # Must run on the event loop: from another thread, vLLM's own task would report a dead
            # engine.
            engine.shutdown()

    async def lost(self) -> str:
        # vLLM has no callback for this, so the flag is polled.
        while self._engine is not None and not self._engine.errored:  # noqa: ASYNC110
            await asyncio.sleep(_LOST_POLL_S)
        return "vLLM's engine has died"

    async def run_all(
        self,
        prompts: Sequence[_Prompt],
        questions: Sequence[str],
        tokenize: Tokenize[_Prompt],
        submit: Submit[_Output],
        times: CallTimes,
    ) -> list[_Output | PromptError]:
        """Runs the prompts of one call; those of a probe on every rank, to find a hung one.

        Args:
            questions: The question of each prompt. All prompts of a question are read by one copy
                of the model, which then has their beginning in its cache.
            tokenize: Called in a thread.
            submit: Called on the event loop.

        Returns:
            For each prompt, in order, vLLM's final output or the prompt's own error.
        """
        ranks: dict[str, Sequence[int]] = {}
        tasks: list[list[asyncio.Task[_Output | PromptError]]] = []
        try:
            with self._pace.call(len(questions)) as turns:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(questions), _TOKENISED_TOGETHER):
                        chunk = range(len(questions))[start : start + _TOKENISED_TOGETHER]
                        with times.rendering():
                            # Off the event loop: a long prompt takes milliseconds. The engine runs
                            # the prompts before these meanwhile.
                            rendered = await asyncio.to_thread(
                                tokenize, prompts[start : start + _TOKENISED_TOGETHER]
                            )
                        for i, ids in zip(chunk, rendered, strict=True):
                            if questions[i] not in ranks:
                                ranks[questions[i]] = self._ranks(questions[i])
                            # `priority`: vLLM runs the smallest number first.
                            run = partial(self._run, i, ids, submit, times, priority=turns[i])
                            tasks.append([])
                            for rank in ranks[questions[i]]:
                                tasks[-1].append(group.create_task(run(rank=rank)))
                                self._count(tasks[-1][-1], rank, ids)
        except ExceptionGroup as failures:
            # Callers catch our errors, not groups; the first failure is enough.
            raise failures.exceptions[0] from failures
        return [on_ranks[0].result() for on_ranks in tasks]

    def _count(self, task: asyncio.Task[Any], rank: int, ids: list[int] | RequestError) -> None:
        """Counts a prompt as unread until its task ends."""
        tokens = len(ids) if isinstance(ids, list) else 0
        self._unread[rank] += tokens

        def done(_: object) -> None:
            self._unread[rank] -= tokens

        task.add_done_callback(done)

    def _ranks(self, question: str) -> Sequence[int]:
        if is_ahead():
            return range(len(self._unread))
        return (rank_of(question, self._unread),)

    async def _run(
        self,
        i: int,
        ids: list[int] | RequestError,
        submit: Submit[_Output],
        times: CallTimes,
        *,
        priority: int,
        rank: int,
    ) -> _Output | PromptError:
        """Runs one prompt: returns an error of this prompt, raises an error of the engine."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError
        from vllm.v1.engine.exceptions import EngineDeadError

        if isinstance(ids, RequestError):
            return ids
        request: dict[str, Any] = {
            "request_id": f"s{next(self._request_ids)}",
            "priority": priority,
            "data_parallel_rank": rank,
        }
        outputs = submit(i, ids, request)
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
            refuse_aborted(last)
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


def refuse_aborted(output: object) -> None:
    """Raises EngineUnavailableError if vLLM ended a prompt before its answer.

    A signal to the process group reaches vLLM, too: it aborts the prompts in progress.
    """
    from vllm.outputs import RequestOutput

    if isinstance(output, RequestOutput) and any(
        each.finish_reason == "abort" for each in output.outputs
    ):
        raise EngineUnavailableError("vLLM stopped before it answered", retry_after_s=30)
