"""Code that vLLM runs in the processes that hold the model."""

from contextlib import suppress
from typing import Any


class WorkerReport:
    """A method that vLLM adds to its workers, which `AsyncLLM.collective_rpc` calls by name."""

    def scope_report(self: Any) -> dict[str, Any]:
        """The dtypes in which the model computes logits, one for most models, and vLLM's runner.

        Both are read through private names of vLLM. A name that has moved leaves its entry empty
        and does not stop the start.
        """
        found: dict[str, Any] = {"head_dtypes": [], "runner": None}
        with suppress(Exception):
            found["runner"] = "V2" if self.use_v2_model_runner else "V1"
        with suppress(Exception):
            from vllm.model_executor.layers.logits_processor import LogitsProcessor

            layers = [m for m in self.get_model().modules() if isinstance(m, LogitsProcessor)]
            # None is the dtype of the weights.
            dtypes = {str(layer.head_dtype or self.model_config.dtype) for layer in layers}
            found["head_dtypes"] = sorted(dtype.removeprefix("torch.") for dtype in dtypes)
        return found
