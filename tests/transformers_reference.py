"""The reference engine: the paper's transformers forward pass, one prompt at a time; slow."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.errors import EngineUnavailableError, RequestError, StartupError
from app.judges.engines.model_files import model_folder, weights_digest
from app.judges.engines.rendering import LabelTokens, PromptRenderer, load_tokenizer
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Thought,
    no_stage,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersOptions:
    """Options of the transformers engine.

    Args:
        model: A Hugging Face id or a folder.
        judge: The judge's name in answers.
        revision: Branch, tag or commit on the hub; None for the default branch.
        dtype: "auto" is float32 for every checkpoint, because this engine is the reference.
        max_model_len: Context in tokens; None for the model's own.
    """

    model: str
    judge: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None


class TransformersEngine:
    """A judge run by one forward pass for each prompt (SCOPE, section on infrastructure).

    Args:
        options: Model, dtype and context.
    """

    def __init__(self, options: TransformersOptions) -> None:
        self._options = options
        self._model: PreTrainedModel | None = None
        # Held for one prompt: the model runs one prompt at a time.
        self._free = asyncio.Lock()
        # Set by start.
        self._renderer: PromptRenderer
        self._labels: LabelTokens

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        """Loads the model; there is nothing to warm up."""
        options = self._options
        on_stage("importing transformers")
        folder = model_folder(options.model, revision=options.revision)
        tokenizer = load_tokenizer(str(folder))
        dtype = "float32" if options.dtype == "auto" else options.dtype
        on_stage("loading the weights")
        model = await asyncio.to_thread(_load, str(folder), dtype)
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", 2**31)
        context = min(options.max_model_len or longest, longest)
        self._renderer = PromptRenderer(tokenizer, max_prompt_tokens=context - 1)
        self._model, self._labels = model, self._renderer.label_tokens(prompt)
        return EngineIdentity(
            judge=options.judge,
            model=options.judge,
            weights=weights_digest(folder),
            chat_frame=self._renderer.chat_frame(prompt.system),
            label_tokens=(self._labels.a, self._labels.b),
            dtype=dtype,
            max_prompt_tokens=context - 1,
        )

    async def stop(self) -> None:
        """Frees the model."""
        self._model = None

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Scores the prompts one by one; a cancelled call ends after its current prompt."""
        times = times or CallTimes()
        with times.rendering():
            rendered = await asyncio.to_thread(self._renderer.token_ids, prompts)
        begun = time.perf_counter()
        results: list[LabelLogits | PromptError] = []
        for ids in rendered:
            async with self._free:
                times.note_wait(time.perf_counter() - begun)
                if self._model is None:
                    raise EngineUnavailableError("the judge is not running")
                if isinstance(ids, RequestError):
                    results.append(ids)
                    continue
                times.prompt_tokens += len(ids)
                work = asyncio.ensure_future(asyncio.to_thread(self._forward, self._model, ids))
                try:
                    results.append(await asyncio.shield(work))
                finally:
                    # A cancelled call releases the model only when its thread has finished.
                    await asyncio.wait((work,))
        return results

    async def generate(self, *_: object) -> list[Generated | PromptError]:
        """The reference has label logits only."""
        raise NotImplementedError

    async def think(self, *_: object) -> list[Thought | PromptError]:
        """The reference has label logits only."""
        raise NotImplementedError

    def _forward(self, model: "PreTrainedModel", ids: list[int]) -> LabelLogits:
        import torch

        with torch.inference_mode():
            tokens = torch.tensor([ids], device=model.device)
            # Only the last position needs logits over the vocabulary.
            logits = model(tokens, logits_to_keep=1).logits[0, -1].float()
            a, b = logits.log_softmax(-1)[[self._labels.a, self._labels.b]].tolist()
        return LabelLogits(a, b)


def _load(folder: str, dtype: str) -> "PreTrainedModel":
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as exc:
        raise StartupError(
            f"transformers cannot be imported ({exc}): install scope-judge[gpu] or scope-judge[cpu]"
        ) from exc
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    except (OSError, ValueError, RuntimeError) as exc:
        raise StartupError(f"transformers could not load {folder}: {exc}") from exc
    model.eval()
    return model.to("cuda") if torch.cuda.is_available() else model
