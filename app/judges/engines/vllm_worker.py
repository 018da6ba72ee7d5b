"""Code that vLLM runs in the processes that hold the model."""

from typing import Any


class HeadInspection:
    """Methods that vLLM adds to its workers, which `AsyncLLM.collective_rpc` calls by name."""

    def scope_head_dtypes(self: Any) -> list[str]:
        """The dtypes in which the model computes logits, sorted; one for most models."""
        from vllm.model_executor.layers.logits_processor import LogitsProcessor

        model = self.get_model()
        dtypes = {each.head_dtype for each in model.modules() if isinstance(each, LogitsProcessor)}
        # None is the dtype of the weights.
        own = self.model_config.dtype
        return sorted(str(dtype or own).removeprefix("torch.") for dtype in dtypes)
