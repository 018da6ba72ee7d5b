"""Two copies of the demo judge in one real vLLM, which on GPUs are `SCOPE_DATA_PARALLEL=2`."""

import asyncio
import gc
import math
from collections import Counter
from typing import Any

import pytest

from app.core.errors import EngineUnavailableError
from app.judges.engines.vllm_local import VllmEngine
from app.judges.prompts import PromptTemplate
from app.ports import LabelLogits, ahead_of_queue
from app.settings import Settings
from app.wiring.startup import bundled_comparisons
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.long,
    # vLLM does not close a ZeroMQ context; the garbage collector warns about it.
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),
]


async def run() -> tuple[Counter[int], Counter[int], list[float]]:
    """The ranks that read the prompts of pairs and of a probe, and differences between ranks."""
    engine = VllmEngine(Settings(data_parallel=2, vllm_args={"kv_cache_memory_bytes": 2**26}))
    template = PromptTemplate()
    prompts = [p for each in bundled_comparisons() for p in template.both_orders(each)]
    try:
        await engine.start(prompts[0])
        process = engine._process
        sent: Counter[int] = Counter()
        run_one = process._run

        def noted(*prompt: Any, priority: int, rank: int) -> Any:
            sent[rank] += 1
            return run_one(*prompt, priority=priority, rank=rank)

        process._run = noted  # type: ignore[method-assign, assignment]
        shared = await engine.label_logits(prompts)
        assert process._unread == [0, 0]
        of_pairs, probe = sent.copy(), prompts[:1]
        sent.clear()
        with ahead_of_queue():
            (probed,) = await engine.label_logits(probe)
        gaps = [
            each.a - each.b if isinstance(each, LabelLogits) else math.nan
            for each in (shared[0], probed)
        ]
        assert all(isinstance(each, LabelLogits) for each in shared)
        return of_pairs, sent, gaps
    finally:
        await engine.stop()
        with pytest.raises(EngineUnavailableError):
            await engine.label_logits(prompts)


def test_both_ranks_read_pairs_and_each_reads_a_probe() -> None:
    of_pairs, of_probe, gaps = asyncio.run(asyncio.wait_for(run(), 4 * PATIENCE_S))
    gc.collect()
    assert of_pairs.total() == 2 * len(bundled_comparisons())
    assert of_pairs.keys() == {0, 1}
    assert of_probe == {0: 1, 1: 1}
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-3)
