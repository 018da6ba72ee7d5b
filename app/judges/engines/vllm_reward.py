"""A reward model on vLLM's pooling runner: one pass a response, and the head's raw output."""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core.errors import JudgmentFailedError, StartupError
from app.core.fingerprint import JudgeIdentity
from app.judges.engines.model_files import architecture_of, model_folder, outputs_of, weights_digest
from app.judges.engines.rendering import PROBE, ConversationRenderer, chat_frame_of, load_tokenizer
from app.judges.engines.vllm_process import VllmProcess
from app.judges.engines.vllm_start import check_settings, judge_arguments, runtime_of
from app.judges.reward_model import reward_identity
from app.ports import CallTimes, Conversation, OnStage, PromptError, ahead_of_queue, no_stage
from app.settings import Settings

if TYPE_CHECKING:
    from vllm import PoolingParams
    from vllm.outputs import PoolingRequestOutput


class VllmRewardModel:
    """A checkpoint for sequence classification with one output, run by vLLM's AsyncLLM."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = VllmProcess()
        # Set by start.
        self._renderer: ConversationRenderer
        self._params: PoolingParams

    async def start(self, on_stage: OnStage = no_stage) -> JudgeIdentity:
        settings = check_settings(self._settings, on_stage)
        folder = await asyncio.to_thread(model_folder, settings)
        check_outputs(folder)
        tokenizer = load_tokenizer(str(folder))
        chat_frame = chat_frame_of(tokenizer)
        config = self._process.load(
            settings,
            folder,
            on_stage=on_stage,
            runner="pooling",
            # A class of vLLM's own for classification needs no conversion: this changes nothing.
            convert="classify",
            # Encoders read a prompt in one step, and vLLM sizes the step by their context.
            max_num_batched_tokens=None,
        )
        from vllm import PoolingParams

        self._renderer = ConversationRenderer(tokenizer, max_prompt_tokens=config.max_model_len)
        # vLLM would put a sigmoid over one output, in which large rewards are equal.
        self._params = PoolingParams(task="classify", use_activation=False)
        on_stage("scoring a first response")
        # On every rank.
        with ahead_of_queue():
            (warm,) = await self.rewards([PROBE])
        if not isinstance(warm, float):
            raise StartupError(f"the judge cannot judge at all: {warm.detail}") from warm
        if not math.isfinite(warm):
            raise StartupError("the judge cannot judge at all: its reward is not a finite number")
        runtime, _ = await runtime_of(self._process.running())
        return reward_identity(
            judge=settings.judge_name,
            architecture=architecture_of(folder),
            weights=await asyncio.to_thread(weights_digest, folder),
            chat_frame=chat_frame,
            dtype=_name(config.dtype),
            head_dtype=_name(config.head_dtype),
            max_prompt_tokens=config.max_model_len,
            runtime=runtime,
            unusual=judge_arguments(settings),
        )

    async def stop(self) -> None:
        self._process.stop()

    async def lost(self) -> str:
        return await self._process.lost()

    async def rewards(
        self, conversations: Sequence[Conversation], times: CallTimes | None = None
    ) -> list[float | PromptError]:
        engine = self._process.running()

        def submitted(
            i: int, ids: list[int], request: dict[str, Any]
        ) -> "AsyncGenerator[PoolingRequestOutput, None]":
            from vllm.inputs import tokens_input

            # encode() takes no rank: of several copies of the model, vLLM chooses one itself.
            del request["data_parallel_rank"]
            outputs: AsyncGenerator[PoolingRequestOutput, None] = engine.encode(
                tokens_input(ids), self._params.clone(), **request
            )
            return outputs

        outputs = await self._process.run_all(
            conversations,
            [repr(conversation[:-1]) for conversation in conversations],
            self._renderer.token_ids,
            submitted,
            times or CallTimes(),
        )
        return [o if isinstance(o, PromptError) else _reward_of(o) for o in outputs]


def check_outputs(folder: Path) -> None:
    """Checks that a checkpoint for sequence classification has one output."""
    outputs = outputs_of(folder)
    if outputs != 1:
        raise StartupError(
            f"{folder} is a model for classification with {outputs} outputs "
            f"({architecture_of(folder)}): a reward model has one (num_labels 1 in config.json)"
        )


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _reward_of(output: "PoolingRequestOutput") -> float | JudgmentFailedError:
    if output.error is not None:
        return JudgmentFailedError("vLLM gave no reward")
    values = output.outputs.data.reshape(-1).tolist()
    if len(values) != 1:
        return JudgmentFailedError(f"vLLM answered with {len(values)} numbers instead of a reward")
    return float(values[0])
