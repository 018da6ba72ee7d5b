"""Measures the cost of a 16-bit head: ties between scores, and the coverage lost to them.

python -m tests.benchmarks.exact_scores [--json FILE]

It runs the real judge with its weights rounded to bfloat16 on 200 real texts with either head, and
compares both with a float32 pass of the same weights. Then it simulates the verdicts that are lost
to ties. The run takes ten minutes on 2 cores.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import logit

from app.core.preference import LN2, FloatArray, preference_from_gaps
from app.core.thresholds import ThresholdCurve
from app.engines import vllm_local, vllm_start
from app.engines.rendering import PromptRenderer, load_tokenizer
from app.engines.transformers_reference import TransformersEngine, TransformersOptions
from app.evaluation.normal_world import NormalJudge
from app.evaluation.paper import ALPHA, scope_cells
from app.ports import LabelLogits, Prompt
from app.service.scoring.prompts import PromptTemplate
from tests.benchmarks.texts import real_pairs
from tests.real_judge import real_judge

TEXTS = 200
# Typical label logits of a confident instruction-tuned model (docs/design/engine.md).
LOGIT = 25.0
VARIANTS = ("float32 throughout (transformers)", "head in float32 (ours)", "bfloat16 throughout")


def prompts() -> list[Prompt]:
    """The shortest real texts, response_a first; a float32 pass over them takes minutes."""
    chosen = sorted(real_pairs(), key=lambda pair: sum(map(len, pair)))[:TEXTS]
    return [PromptTemplate().render(pair.comparison) for pair in chosen]


def round_weights(checkpoint: Path, folder: Path) -> None:
    """Copies a checkpoint with its weights rounded to bfloat16."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    rounded = {name: each.to(torch.bfloat16) for name, each in load_file(weights).items()}
    save_file(rounded, weights, metadata={"format": "pt"})
    content = json.loads(config.read_text(encoding="utf-8")) | {"dtype": "bfloat16"}
    config.write_text(json.dumps(content), encoding="utf-8")


def measured(variant: str, folder: str) -> dict[str, Any]:
    """Gaps and seconds of one variant; runs in a process of its own."""
    if variant == VARIANTS[0]:
        return asyncio.run(_float32_pass(folder))
    vllm_start.set_environment()
    from vllm import LLM
    from vllm.inputs import tokens_input

    options = vllm_start.VllmOptions(model=folder, judge="raw")
    arguments = vllm_start.engine_arguments(options, Path(folder))
    arguments.pop("enable_log_requests", None)
    if variant == VARIANTS[2]:
        del arguments["hf_overrides"]
    engine = LLM(**arguments)
    renderer = PromptRenderer(load_tokenizer(folder), max_prompt_tokens=2**31)
    labels = renderer.label_tokens(prompts()[0])
    inputs = [tokens_input(ids) for ids in renderer.token_ids(prompts()) if isinstance(ids, list)]
    engine.generate(inputs[:8], vllm_local._label_params(labels), use_tqdm=False)
    began = time.perf_counter()
    outputs = engine.generate(inputs, vllm_local._label_params(labels), use_tqdm=False)
    seconds = time.perf_counter() - began
    found = [output.outputs[0].logprobs[0] for output in outputs]
    gaps = [each[labels.a].logprob - each[labels.b].logprob for each in found]
    return {"gaps": gaps, "seconds": seconds}


async def _float32_pass(folder: str) -> dict[str, Any]:
    engine = TransformersEngine(TransformersOptions(model=folder, judge="x"))
    asked = prompts()
    await engine.start(asked[0])
    began = time.perf_counter()
    found = await engine.label_logits(asked)
    seconds = time.perf_counter() - began
    return {
        "gaps": [each.a - each.b for each in found if isinstance(each, LabelLogits)],
        "seconds": seconds,
    }


def in_bfloat16(values: FloatArray) -> FloatArray:
    """Rounds to the nearest bfloat16, ties to even, as hardware does.

    Args:
        values: Finite values of any shape.
    """
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def coverages(
    accuracy: float, auroc: float, *, seed: int, calibrations: int
) -> tuple[float, float]:
    """SCOPE's coverage at alpha 0.10 with exact scores, and with scores from bfloat16 logits.

    The judge is one of the normal world. Its confidence becomes a gap in both orders, around label
    logits of 25. It is calibrated on 1,000 pairs and tested on 20,000.
    """
    judge, rng = NormalJudge(accuracy=accuracy, auroc=auroc), np.random.default_rng(seed)
    accepted: list[list[float]] = [[], []]
    for _ in range(calibrations):
        uncertainty, wrong = judge.draw(21_000, rng)
        gaps = logit(1.0 - 0.5 * np.clip(uncertainty / LN2, 1e-12, 1.0 - 1e-12))
        rounded = in_bfloat16(LOGIT + gaps / 2) - in_bfloat16(LOGIT - gaps / 2)
        for taken, scores in zip(accepted, (gaps, rounded), strict=True):
            found = preference_from_gaps(scores, scores)
            # A gap that rounds to 0 is no preference: an error that is never accepted.
            error = wrong | (found.p_bar == 0.5)
            threshold = ThresholdCurve.fit(found.entropy[:1000], error[:1000]).threshold(ALPHA)
            fine = (found.entropy[1000:] <= threshold) & (found.p_bar[1000:] != 0.5)
            taken.append(float(fine.mean()))
    return float(np.mean(accepted[0])), float(np.mean(accepted[1]))


def measure_heads(folder: Path) -> list[dict[str, Any]]:
    """One row for each variant of a judge; the other rows are compared with the first."""
    rows: list[dict[str, Any]] = []
    exact: FloatArray | None = None
    for variant in VARIANTS:
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "--variant",
            variant,
            "--model",
            str(folder),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        (line,) = (x for x in done.stdout.splitlines() if x.startswith('{"answer"'))
        answer = json.loads(line)["answer"]
        gaps = np.array(answer["gaps"])
        exact = gaps if exact is None else exact
        rows.append(
            {
                "head": variant,
                "distinct": len(set(gaps.tolist())),
                "ties": int((gaps == 0).sum()),
                "off": float(np.abs(gaps - exact).max()),
                "flips": int((np.sign(gaps) != np.sign(exact)).sum()),
                "seconds": round(answer["seconds"], 1),
            }
        )
    return rows


def simulate() -> list[tuple[str, str, float, float]]:
    """Judge, data set and both coverages, for the paper's twelve cells."""
    return [
        (
            cell.judge,
            cell.dataset,
            *coverages(cell.accuracy, cell.auroc, seed=i, calibrations=200),
        )
        for i, cell in enumerate(scope_cells())
    ]


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of numbers with three significant digits."""
    made = Table(*headings, title=title)
    for row in rows:
        made.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.variant:
        print(json.dumps({"answer": measured(given.variant, given.model)}))
        return
    console = Console()
    with tempfile.TemporaryDirectory() as made:
        round_weights(real_judge(), Path(made, "judge"))
        heads = measure_heads(Path(made, "judge"))
    title = f"Label logits of {TEXTS} real texts, SmolLM2-135M-Instruct"
    headings = ("head", "distinct gaps", "ties", "largest error", "flips", "seconds")
    console.print(table(title, headings, (list(row.values()) for row in heads)))
    lost = simulate()
    title = "Coverage of SCOPE at alpha 0.10, simulated with the paper's figures"
    console.print(table(title, ("judge", "data set", "exact", "bfloat16 logits near 25"), lost))
    if given.json:
        given.json.write_text(json.dumps({"heads": heads, "coverage": lost}, indent=1) + "\n")


if __name__ == "__main__":
    main()
