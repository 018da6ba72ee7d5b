"""The forward pass of the paper with transformers, with which engines are compared."""

from collections.abc import Sequence

from app.core.errors import RequestError
from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from app.ports import LabelLogits, Prompt


class Reference:
    """A judge that transformers runs.

    Args:
        folder: Folder of the model.
        prompt: One of its prompts, behind which its labels are looked up.
        dtype: Dtype of the weights; float32 for every checkpoint unless something else is measured.
        device: As PyTorch names it.
    """

    def __init__(
        self, folder: str, prompt: Prompt, *, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self._renderer = PromptRenderer(load_tokenizer(folder))
        self.labels = self._renderer.label_tokens(prompt)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model = model.eval().to(device)

    def __call__(self, prompts: Sequence[Prompt]) -> list[LabelLogits]:
        """The log-probabilities of the labels behind each prompt."""
        import torch

        found = []
        for ids in self._renderer.token_ids(prompts):
            assert not isinstance(ids, RequestError), ids
            with torch.inference_mode():
                tokens = torch.tensor([ids], device=self._model.device)
                # Only the last position needs logits over the vocabulary.
                logits = self._model(tokens, logits_to_keep=1).logits[0, -1].float()
                a, b = logits.log_softmax(-1)[[self.labels.a, self.labels.b]].tolist()
            found.append(LabelLogits(a, b))
        return found
