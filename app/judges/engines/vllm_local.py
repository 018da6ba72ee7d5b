"""The vLLM engine: AsyncLLM returns label log-probabilities, thoughts, or answers in words."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from app.core.errors import JudgmentFailedError, RequestError, StartupError
from app.judges.engines.chat_template import no_room
from app.judges.engines.model_files import model_folder, weights_digest
from app.judges.engines.rendering import LabelTokens, PromptRenderer, load_tokenizer
from app.judges.engines.thinking import EndOfThought, UseOfTemplate
from app.judges.engines.vllm_process import VllmProcess, refuse_aborted
from app.judges.engines.vllm_start import check_settings, judge_arguments, runtime_of
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Sampling,
    Thought,
    ahead_of_queue,
    no_stage,
)
from app.settings import Settings

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams

logger = logging.getLogger("app.judges.engines")


class VllmEngine:
    """A judge run by vLLM's AsyncLLM, which runs its scheduler in its own process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = VllmProcess()
        # Set by start.
        self._renderer: PromptRenderer
        self._labels: LabelTokens
        self._context_tokens: int
        self._identity: EngineIdentity
        self._label_params: SamplingParams
        self._uncached_params: SamplingParams
        self._after_thought: tuple[int, ...]

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        settings = check_settings(self._settings, on_stage)
        folder = await asyncio.to_thread(model_folder, settings)
        # First: a wrong tokenizer is reported before minutes of loading weights. The longest prompt
        # is known only once the model is loaded.
        renderer = self._renderer = PromptRenderer(
            load_tokenizer(str(folder)), use=UseOfTemplate.of(settings)
        )
        labels = renderer.label_tokens(prompt)
        config = self._process.load(settings, folder, on_stage=on_stage)
        self._context_tokens = config.max_model_len
        # One token of the context is left for the answer.
        renderer.max_prompt_tokens = config.max_model_len - 1
        self._set_labels(labels, prompt)
        on_stage("judging a first prompt")
        # On every rank.
        with ahead_of_queue():
            (warm,) = await self.label_logits([prompt])
        if not isinstance(warm, LabelLogits):
            raise StartupError(f"the judge cannot judge at all: {warm.detail}") from warm
        dtype = str(config.dtype).removeprefix("torch.")
        runtime, head_dtype = await runtime_of(self._process.running())
        if head_dtype != "float32":
            logger.warning(
                "this judge computes its logits in %s and not in float32, so scores of different "
                "comparisons may be equal",
                head_dtype or "an unknown dtype",
            )
        self._identity = EngineIdentity(
            judge=settings.judge_name,
            weights=await asyncio.to_thread(weights_digest, folder),
            chat_frame=renderer.chat_frame(prompt.system),
            label_tokens=labels,
            dtype=dtype,
            max_prompt_tokens=renderer.max_prompt_tokens,
            head_dtype=head_dtype,
            runtime=runtime,
            think_end=None if renderer.end is None else renderer.end.text,
            unusual={
                **({} if head_dtype == "float32" else {"head_dtype": head_dtype}),
                **judge_arguments(settings),
            },
        )
        return self._identity

    async def use_prompt(self, prompt: Prompt) -> EngineIdentity:
        self._set_labels(self._renderer.label_tokens(prompt), prompt)
        self._identity = replace(self._identity, label_tokens=self._labels)
        return self._identity

    def _set_labels(self, labels: LabelTokens, prompt: Prompt) -> None:
        self._after_thought = self._renderer.tokens_after_thought(prompt)
        self._labels = labels
        self._label_params = _label_params(labels)
        self._uncached_params = _label_params(labels, reads_cache=False)

    async def stop(self) -> None:
        self._process.stop()

    async def lost(self) -> str:
        return await self._process.lost()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        self._process.running()  # Raises before `start`: the fields below are not set then.
        outputs = await self._run_all(prompts, [self._label_params] * len(prompts), times)
        return [o if isinstance(o, PromptError) else self._labels_of(o) for o in outputs]

    async def recomputed_label_logits(
        self, prompts: Sequence[Prompt]
    ) -> list[LabelLogits | PromptError]:
        self._process.running()
        outputs = await self._run_all(prompts, [self._uncached_params] * len(prompts))
        return [o if isinstance(o, PromptError) else self._labels_of(o) for o in outputs]

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        self._process.running()  # Raises before `start`, without importing vLLM.
        params = _text_params(sampling)
        times = times or CallTimes()
        answers: list[Generated | PromptError] = []
        for output in await self._run_all(prompts, params, times):
            if isinstance(output, PromptError):
                answers += [output] * sampling.n
            else:
                times.written_tokens += sum(len(o.token_ids) for o in output.outputs)
                answers += map(_text_of, output.outputs)
        return answers

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        self._process.running()
        end, times = self._renderer.end, times or CallTimes()
        assert end is not None, "the judge does not think"
        params = _text_params(sampling, **end.stops)

        def submitted(
            i: int, ids: list[int], request: dict[str, Any]
        ) -> AsyncGenerator[list[Thought | PromptError], None] | RequestError:
            outputs = self._submitted(ids, params[i], request, more=len(self._after_thought) + 1)
            if isinstance(outputs, RequestError):
                return outputs
            return self._thoughts(end, ids, outputs, request, times)

        answers: list[Thought | PromptError] = []
        for output in await self._process.run_all(
            prompts,
            [prompt.question for prompt in prompts],
            partial(self._renderer.token_ids, thinks_next=True),
            submitted,
            times,
        ):
            answers += output if isinstance(output, list) else [output] * sampling.n
        return answers

    async def _thoughts(
        self,
        end: EndOfThought,
        ids: list[int],
        outputs: "AsyncGenerator[RequestOutput, None]",
        request: dict[str, Any],
        times: CallTimes,
    ) -> "AsyncGenerator[list[Thought | PromptError], None]":
        """Yields the thoughts of one prompt once, with the labels behind them."""
        thoughts = await _last(outputs)

        async def read(place: int, thought: "CompletionOutput") -> Thought | PromptError:
            times.written_tokens += len(thought.token_ids)
            if thought.finish_reason not in ("stop", "length"):
                return JudgmentFailedError(f"vLLM ended a thought early ({thought.finish_reason})")
            if not end.is_reached(thought.finish_reason, thought.stop_reason):
                return Thought(thought.text, None)
            whole = [*ids, *thought.token_ids, *self._after_thought]
            times.prompt_tokens += len(whole)
            own = {**request, "request_id": f"{request['request_id']}-{place}"}
            found = await _last(
                self._process.running().generate(tokens_input(whole), self._label_params, **own)
            )
            labels = self._labels_of(found)
            return labels if isinstance(labels, PromptError) else Thought(thought.text, labels)

        from vllm.inputs import tokens_input

        try:
            async with asyncio.TaskGroup() as group:
                reads = [
                    group.create_task(read(place, thought))
                    for place, thought in enumerate(thoughts.outputs)
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        yield [each.result() for each in reads]

    async def _run_all(
        self,
        prompts: Sequence[Prompt],
        params: Sequence["SamplingParams"],
        times: CallTimes | None = None,
    ) -> list["RequestOutput | PromptError"]:
        """For each prompt, in order, vLLM's final output or the prompt's own error."""
        return await self._process.run_all(
            prompts,
            [prompt.question for prompt in prompts],
            self._renderer.token_ids,
            lambda i, ids, request: self._submitted(ids, params[i], request),
            times or CallTimes(),
        )

    def _submitted(
        self, ids: list[int], params: "SamplingParams", request: dict[str, Any], *, more: int = 0
    ) -> "AsyncGenerator[RequestOutput, None] | RequestError":
        """Submits a prompt, unless vLLM would cut its answer, or `more` tokens after it."""
        from vllm.inputs import tokens_input

        error = no_room(ids, params.max_tokens + more, self._context_tokens)
        if error is not None:
            return error
        outputs: AsyncGenerator[RequestOutput, None] = self._process.running().generate(
            tokens_input(ids), params, **request
        )
        return outputs

    def _labels_of(self, output: "RequestOutput") -> LabelLogits | JudgmentFailedError:
        try:
            logprobs = output.outputs[0].logprobs[0]
            return LabelLogits(logprobs[self._labels.a].logprob, logprobs[self._labels.b].logprob)
        except (AttributeError, IndexError, KeyError, TypeError):
            return JudgmentFailedError("vLLM answered without the label log-probabilities")


async def _last(outputs: "AsyncGenerator[RequestOutput, None]") -> "RequestOutput":
    last = None
    async with contextlib.aclosing(outputs):
        async for output in outputs:
            last = output
    assert last is not None, "vLLM ends every request with an output"
    refuse_aborted(last)
    return last


def _text_of(answer: "CompletionOutput") -> Generated | JudgmentFailedError:
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


def _text_params(sampling: Sampling, **stops: Any) -> list["SamplingParams"]:
    """Sampling parameters of each prompt, without log-probabilities.

    One vLLM engine must not mix two kinds of log-probability requests (docs/design/engine.md).
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return [
        SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            seed=seed,
            # vLLM refuses several greedy answers, which would all be the same.
            n=sampling.n,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **stops,
        )
        for seed in sampling.seeds
    ]
