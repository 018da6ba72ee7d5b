"""Labels against thoughts, with a judge that thinks."""

import json
import subprocess
import sys
from pathlib import Path

from app.core.errors import StartupError
from tests.drills.gpu.scene import Finding, NotRunError, Scene

_MODEL = "Qwen/Qwen3-8B"
_QWEN = (
    *("--model", _MODEL, "--pairs", "demo", "--max-model-len", "8192", "--prefill", "[["),
    *("--think-tokens", "2048", "--temperature", "0.6"),
)


def thoughts(scene: Scene) -> Finding:
    """Step 12: AUROC and coverage a second, by labels, one thought and four thoughts."""
    folder = scene.own_folder()
    options = _tiny(scene, folder) if scene.small else _qwen(scene)
    scene.on_stage("measuring labels, one thought and four")
    out = folder / "figures.json"
    command = [sys.executable, "-m", "tests.demo_judge.measure_thoughts", "--json", str(out)]
    with (folder / "measure.log").open("wb") as log:
        subprocess.run([*command, *options], stdout=log, stderr=log, check=True)
    kinds = json.loads(out.read_text(encoding="utf-8"))
    return Finding(
        sentence="; ".join(
            f"{kind['name']}: AUROC {kind['auroc'] or float('nan'):.3f}, coverage "
            f"{kind['coverage']:.3f} at {kind['seconds']:.2f} s a pair, "
            f"{kind['unfinished']:.1%} unfinished"
            for kind in kinds
        ),
        held=all(kind["unfinished"] < 0.5 for kind in kinds),
        figures={"kinds": kinds},
    )


def _qwen(scene: Scene) -> tuple[str, ...]:
    from app.judges.engines.model_files import model_folder

    scene.on_stage(f"fetching {_MODEL}")
    try:
        model_folder(_MODEL, revision=None)
    except StartupError as exc:
        raise NotRunError(f"{_MODEL} cannot be fetched: {exc.detail}") from exc
    return _QWEN


def _tiny(scene: Scene, folder: Path) -> tuple[str, ...]:
    from tests.demo_judge.train_thinking import LONGEST_THOUGHT, trained

    scene.on_stage("training a tiny judge that thinks")
    judge = trained(folder / "thinking")
    return (
        *("--model", str(judge), "--prompt-file", str(judge / "prompt.toml"), "--pairs", "sums"),
        *("--think-tokens", str(LONGEST_THOUGHT), "--calibrated", "100", "--fresh", "100"),
        *("--shown", "10"),
    )
