"""The vLLM engine: AsyncLLM returns the two label log-probabilities, or an answer in words."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    OverloadedError,
    PromptTooLongError,
    RequestError,
    StartupError,
)
from app.engines.model_files import LocalModel, nests_language_model
from app.engines.rendering import LabelTokens, PromptRenderer
from app.engines.turns import Pace
from app.engines.vllm_build import check_gpus
from app.engines.vllm_start import (
    VllmOptions,
    check_arguments,
    engine_arguments,
    import_vllm,
    inspect_model,
    load,
    runtime_of,
    set_environment,
)
from app.engines.vllm_worker import HeadInspection
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    no_stage,
)

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger("app.engines")

# Interval between two checks whether vLLM still runs.
_LOST_POLL_S = 0.25
# Prompts of a call that are tokenised in one step, before the first of them reaches vLLM.
_TOKENISED_TOGETHER = 64


class VllmEngine:
    """A judge run by vLLM's AsyncLLM, which runs its scheduler in a process of its own.

    Args:
        options: Model, dtype, context and memory.
    """

    def __init__(self, options: VllmOptions) -> None:
        self._options = options
        self._engine: AsyncLLM | None = None
        self._request_ids = itertools.count()
        self._pace = Pace()
        # Set by start.
        self._renderer: PromptRenderer
        self._labels: LabelTokens
        self._context_tokens: int
        self._label_params: SamplingParams
        self._uncached_params: SamplingParams

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        """Loads the model and scores one prompt, so that the first request is not slow."""
        options = self._options
        # First: it may import a part of vLLM.
        set_environment(reports_start=options.reports_start)
        check_gpus(options.tensor_parallel_size)
        on_stage("importing vLLM")
        if options.arguments:
            # Before the model is fetched: a misspelt name is reported at once.
            import_vllm()
            check_arguments(options.arguments)
        local = await LocalModel.open(options.model, prompt, revision=options.revision)
        arguments = engine_arguments(options, local.folder)
        import_vllm()
        inspect_model(local.folder)
        on_stage("loading the weights")
        # Assign directly to the attribute: this frame outlives `start`, and an engine freed at
        # interpreter exit prints errors.
        self._engine = load(arguments, log_format=options.log_format)
        config = self._running().model_config
        self._context_tokens = config.max_model_len
        self._renderer, self._labels = local.renderer(config.max_model_len), local.labels
        self._label_params = _label_params(local.labels)
        self._uncached_params = _label_params(local.labels, reads_cache=False)
        on_stage("judging a first prompt")
        (warm,) = await self.label_logits([prompt])
        if not isinstance(warm, LabelLogits):
            raise StartupError(f"the judge cannot judge at all: {warm.detail}") from warm
        if options.reports_start:
            logging.getLogger("vllm").setLevel(logging.ERROR)
        dtype = str(config.dtype).removeprefix("torch.")
        identity = await local.identity(
            options.judge, dtype=dtype, context_tokens=config.max_model_len
        )
        head_dtype = await self._head_dtype()
        return replace(
            identity,
            head_dtype=head_dtype,
            runtime=runtime_of(self._engine),
            unusual=unusual_inputs(
                options.judge_arguments,
                dtype=dtype,
                head_dtype=head_dtype,
                nested=nests_language_model(local.folder),
            ),
        )

    async def _head_dtype(self) -> str:
        """The dtype in which the workers compute logits, as the loaded model says; logs 16 bits."""
        dtypes = await self._running().collective_rpc(HeadInspection.scope_head_dtypes.__name__)
        head_dtype = " ".join(sorted({dtype for worker in dtypes for dtype in worker}))
        if head_dtype != "float32":
            logger.warning(
                "this judge computes its logits in %s and not in float32, so scores of different "
                "comparisons may be equal",
                head_dtype or "an unknown dtype",
            )
        return head_dtype

    async def stop(self) -> None:
        """Shuts down vLLM and its process."""
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

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Submits all prompts together; vLLM batches them and computes common prefixes once."""
        self._running()  # Raises before `start`: the fields below are not set then.
        outputs = await self._run_all(prompts, [self._label_params] * len(prompts), times)
        return [o if isinstance(o, PromptError) else self._labels_of(o) for o in outputs]

    async def label_logits_anew(self, prompts: Sequence[Prompt]) -> list[LabelLogits | PromptError]:
        """Computes all prompts again; vLLM's prefix cache is filled and not read."""
        self._running()
        outputs = await self._run_all(prompts, [self._uncached_params] * len(prompts))
        return [o if isinstance(o, PromptError) else self._labels_of(o) for o in outputs]

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int],
    ) -> list[Generated | PromptError]:
        """Submits all prompts together, as `label_logits` does."""
        self._running()  # Raises before `start`, without importing vLLM.
        params = [_text_params(max_tokens, temperature, seed) for seed in seeds]
        outputs = await self._run_all(prompts, params)
        return [o if isinstance(o, PromptError) else _text_of(o) for o in outputs]

    def _running(self) -> "AsyncLLM":
        if self._engine is None:
            raise EngineUnavailableError("the judge is not running")
        return self._engine

    async def _run_all(
        self,
        prompts: Sequence[Prompt],
        params: Sequence["SamplingParams"],
        times: CallTimes | None = None,
    ) -> list["RequestOutput | PromptError"]:
        """For each prompt, in order, vLLM's final output or the prompt's own error."""
        if len(prompts) != len(params):
            raise ValueError(f"{len(prompts)} prompts have {len(params)} seeds")
        engine, times = self._running(), times or CallTimes()
        order = await _order(prompts)
        tasks = {}
        try:
            with self._pace.call(len(prompts)) as turns:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(order), _TOKENISED_TOGETHER):
                        chunk = order[start : start + _TOKENISED_TOGETHER]
                        with times.rendering():
                            # Off the event loop: a long prompt takes milliseconds. The engine runs
                            # the prompts before these meanwhile.
                            rendered = await asyncio.to_thread(
                                self._renderer.token_ids, [prompts[i] for i in chunk]
                            )
                        # `priority`: vLLM runs the smallest number first.
                        for turn, i, ids in zip(turns[start:], chunk, rendered, strict=False):
                            run = self._run(engine, ids, params[i], times, priority=turn)
                            tasks[i] = group.create_task(run)
        except ExceptionGroup as failures:
            # Callers catch our errors, not groups; the first failure is enough.
            raise failures.exceptions[0] from failures
        return [tasks[i].result() for i in range(len(prompts))]

    async def _run(
        self,
        engine: "AsyncLLM",
        ids: list[int] | RequestError,
        params: "SamplingParams",
        times: CallTimes,
        *,
        priority: int,
    ) -> "RequestOutput | PromptError":
        """Runs one prompt: returns an error of this prompt, raises an error of the engine."""
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        if isinstance(ids, RequestError):
            return ids
        # Otherwise vLLM would cut the answer silently.
        if len(ids) + params.max_tokens > self._context_tokens:
            return PromptTooLongError(
                f"the prompt has {len(ids)} tokens, its answer may take {params.max_tokens}, and "
                f"this judge's context is {self._context_tokens}; shorten the question or the "
                "responses, or run a judge with a longer context"
            )
        times.prompt_tokens += len(ids)
        outputs = engine.generate(
            tokens_input(ids), params, f"s{next(self._request_ids)}", priority=priority
        )
        last = None
        try:
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    last = output
            self._pace.note_done()
            if last is not None and last.metrics is not None:
                times.note_wait(last.metrics.scheduled_ts - last.metrics.queued_ts)
        except EngineDeadError as exc:
            raise EngineUnavailableError("vLLM's engine has died", retry_after_s=30) from exc
        except GracefulHTTPError as exc:
            raise OverloadedError("vLLM's queue is full") from exc
        except (VLLMClientError, VLLMServerError) as exc:
            return JudgmentFailedError(f"vLLM gave no judgment ({type(exc).__name__})")
        return last or JudgmentFailedError("vLLM ended without an answer")

    def _labels_of(self, output: "RequestOutput") -> LabelLogits | JudgmentFailedError:
        try:
            logprobs = output.outputs[0].logprobs[0]
            return LabelLogits(logprobs[self._labels.a].logprob, logprobs[self._labels.b].logprob)
        except (AttributeError, IndexError, KeyError, TypeError):
            return JudgmentFailedError("vLLM answered without the label log-probabilities")


def unusual_inputs(
    arguments: Mapping[str, object], *, dtype: str, head_dtype: str, nested: bool
) -> dict[str, object]:
    """The inputs of the scores that judges of release 0.2.0 did not have, for the fingerprint.

    A judge without them keeps the fingerprint that release 0.2.0 gave it, because its scores are
    the same.

    Args:
        arguments: Further arguments of vLLM that change what the judge computes.
        dtype: Dtype of the model.
        head_dtype: Dtype in which the model computes logits.
        nested: Whether the language model is nested in a multimodal one. Release 0.2.0 left the
            head of most of these in 16 bits.
    """
    inputs: dict[str, object] = {}
    if head_dtype != "float32" or (nested and dtype != "float32"):
        inputs["head_dtype"] = head_dtype
    if arguments:
        inputs["vllm_args"] = dict(arguments)
    return inputs


async def _order(prompts: Sequence[Prompt]) -> list[int]:
    """The order in which to submit prompts: those with the same beginning follow each other.

    vLLM's prefix cache evicts the beginnings that were not used for longest, so one that returns
    later may have to be computed again. The order gains nothing measurable while the cache holds
    all of them; larger batches may gain (docs/design/decisions.md).
    """

    def places() -> list[int]:
        return sorted(range(len(prompts)), key=prompts.__getitem__)

    # Long texts with long common beginnings take tens of milliseconds.
    return places() if len(prompts) <= _TOKENISED_TOGETHER else await asyncio.to_thread(places)


def _text_of(output: "RequestOutput") -> Generated | JudgmentFailedError:
    answer = output.outputs[0]
    if answer.finish_reason not in ("stop", "length"):
        return JudgmentFailedError(f"vLLM ended an answer early ({answer.finish_reason})")
    return Generated(answer.text, complete=answer.finish_reason == "stop")


def _label_params(labels: LabelTokens, *, reads_cache: bool = True) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        logprob_token_ids=[labels.a, labels.b],
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_reading_prefix_cache=not reads_cache,
        # vLLM copies and changes the parameters for each prompt. A shallow copy is enough, because
        # the changes are always the same; a deep one takes a fifth of this process's time.
        skip_clone=True,
    )


def _text_params(max_tokens: int, temperature: float, seed: int) -> "SamplingParams":
    """Sampling parameters without log-probabilities.

    One vLLM engine must not mix two kinds of log-probability requests (docs/design/engine.md).
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
