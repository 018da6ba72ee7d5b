"""The paper's own way: transformers, one prompt at a time. Slow; others are held against it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.errors import EngineUnavailableError, RequestError, StartupError
from app.engines.model_files import model_folder, weights_digest
from app.engines.rendering import LabelTokens, PromptRenderer, load_tokenizer
from app.ports import CallTimes, EngineIdentity, LabelLogits, Prompt, PromptError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """How transformers runs the judge.

    Args:
        model: A Hugging Face id or a folder.
        judge: The judge's name in answers.
        revision: Branch, tag or commit on the hub.
        dtype: "auto" is float32, whatever the checkpoint's own: this engine is the reference.
        max_model_len: Context in tokens; None for the model's.
    """

    model: str
    judge: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None


class TransformersEngine:
    """A judge run by a plain forward pass for each prompt (SCOPE, section on infrastructure)."""

    def __init__(self, options: TransformersOptions) -> None:
        self._options = options
        self._model: PreTrainedModel | None = None
        # One prompt at a time, whoever asks.
        self._free = asyncio.Lock()
        # Set by start.
        self._renderer: PromptRenderer
        self._labels: LabelTokens

    async def start(self, prompt: Prompt) -> EngineIdentity:
        """Loads the model; there is nothing to warm up."""
        options = self._options
        folder = await asyncio.to_thread(model_folder, options.model, revision=options.revision)
        tokenizer = load_tokenizer(str(folder))
        labels = PromptRenderer(tokenizer, max_prompt_tokens=2**31).label_tokens(prompt)
        dtype = "float32" if options.dtype == "auto" else options.dtype
        model = await asyncio.to_thread(_load, str(folder), dtype)
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", 2**31)
        context = min(options.max_model_len or longest, longest)
        # One token for the answer, as for the other engines.
        max_prompt_tokens = context - 1
        self._renderer = PromptRenderer(tokenizer, max_prompt_tokens=max_prompt_tokens)
        self._model, self._labels = model, labels
        return EngineIdentity(
            judge=options.judge,
            model=options.judge,
            weights=await asyncio.to_thread(weights_digest, folder),
            chat_frame=self._renderer.frame(prompt.system).text,
            label_tokens=(labels.a, labels.b),
            dtype=dtype,
            max_prompt_tokens=max_prompt_tokens,
        )

    async def stop(self) -> None:
        """Frees the model."""
        self._model = None

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Scores one prompt after the other; a cancelled call ends with the prompt it is at."""
        times = times or CallTimes()
        with times.rendering():
            rendered = await asyncio.to_thread(self._renderer.token_ids, prompts)
        begun = time.perf_counter()
        found: list[LabelLogits | PromptError] = []
        for ids in rendered:
            async with self._free:
                times.note_wait(time.perf_counter() - begun)
                if self._model is None:
                    raise EngineUnavailableError("the judge is not running")
                if isinstance(ids, RequestError):
                    found.append(ids)
                    continue
                work = asyncio.ensure_future(asyncio.to_thread(self._forward, self._model, ids))
                try:
                    found.append(await asyncio.shield(work))
                finally:
                    # A cancelled call leaves the model only when the thread has.
                    await asyncio.wait((work,))
        return found

    def _forward(self, model: "PreTrainedModel", ids: list[int]) -> LabelLogits:
        import torch

        with torch.inference_mode():
            tokens = torch.tensor([ids], device=model.device)
            # Only the last position is asked for: a vocabulary of logits for each is not needed.
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
