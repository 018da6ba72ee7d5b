"""Tests that a judge for more GPUs than there are is refused before it is loaded."""

import pytest

from app.core.errors import StartupError
from app.engines.vllm_local import VllmEngine
from app.engines.vllm_start import VllmOptions, is_cpu_build
from app.ports import Prompt

pytestmark = pytest.mark.anyio

# More GPUs than any machine has.
MANY = 4096


async def test_tensor_parallel_without_the_gpus_is_refused_in_one_sentence() -> None:
    engine = VllmEngine(VllmOptions("no-such/model", "judge", tensor_parallel_size=MANY))
    with pytest.raises(StartupError) as caught:
        await engine.start(Prompt("system", "user", ""))
    assert caught.value.detail.startswith(
        f"SCOPE_TENSOR_PARALLEL={MANY} shares the judge among {MANY} GPUs, and this machine has "
    )
    if is_cpu_build():
        assert caught.value.detail.endswith(
            "none that vLLM can use: set it to 1, or use another machine"
        )
