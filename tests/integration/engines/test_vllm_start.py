"""A start of real vLLM imports it once in a row: in the service and in vLLM's process together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.engines.vllm_start import is_cpu_build
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not is_cpu_build(), reason="on a GPU vLLM forks its process"),
]

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, gc, multiprocessing
from pathlib import Path
from app.core.comparison import Comparison
from app.engines.early_process import EarlyProcess
from app.engines.vllm_local import VllmEngine
from app.engines.vllm_start import VllmOptions
from app.service.judging.prompts import PromptTemplate
from app.wiring.engines import DEMO_FOLDER

early, become = [], EarlyProcess.become

def noted(process, *arguments):
    early.append(become(process, *arguments))
    return early[-1]

async def main():
    EarlyProcess.become = noted
    engine = VllmEngine(VllmOptions(str(DEMO_FOLDER / "model"), judge="demo"))
    stages = []
    await engine.start(PromptTemplate().render(Comparison.of("x", "x", "x")), stages.append)
    print("early", early == [child.pid for child in multiprocessing.active_children()])
    print(Path(f"/proc/{early[0]}/cmdline").read_text().strip("\\0 "))
    print("collecting", gc.isenabled())
    print(", ".join(stages))
    await engine.stop()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_vllm_runs_in_the_process_that_imported_it_early(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(PROGRAM)
    started = subprocess.run(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        env={
            **{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            "PYTHONPATH": str(ROOT),
            # Nothing is cached, as on the first start of a machine.
            "VLLM_CACHE_ROOT": str(tmp_path / "cache"),
        },
    )
    assert started.returncode == 0
    assert started.stdout.splitlines() == [
        "early True",
        "VLLM::EngineCore",
        "collecting True",
        "importing vLLM, loading the weights, judging a first prompt",
    ]
    # vLLM writes here what a third process found out about the model's class.
    assert not (tmp_path / "cache" / "modelinfos").exists()
