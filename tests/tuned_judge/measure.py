"""Measures SmolLM2-135M-Instruct and the tuned judge through `scope-judge evaluate`.

python -m tests.tuned_judge.measure    # writes docs/measured/tuned-judge.json and .md

The judgments are kept in --out, so a run that was stopped goes on where it stopped.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.diagnostics import auroc
from app.core.preference import FloatArray
from app.core.thresholds import ThresholdCurve
from app.evaluation.judgments.jsonl import read_judgments
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.methods import bpe
from tests.real_judge import real_judge
from tests.tuned_judge.checkpoint import PREFILL, tuned_judge
from tests.tuned_judge.page import NUMBERS, write_page
from tests.tuned_judge.sets import NAMES, Name, measured_pairs

ALPHAS = (0.10, 0.20)
SPLITS = 1000


def ask(model: Path, folder: Path) -> None:
    """Judges the pairs of both sets with one judge; a pair's id begins with its family."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.jsonl" for name in NAMES}
    for name, file in files.items():
        lines = [
            json.dumps(pair._asdict() | {"id": f"{pair.family}-{number}"}) + "\n"
            for number, pair in enumerate(measured_pairs(name))
        ]
        file.write_text("".join(lines), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("scope-judge")), "evaluate"]
    command += [*map(str, files.values()), "--judge", str(model), "--methods", "bpe"]
    command += ["--out", str(folder / "evaluation")]
    subprocess.run(command, check=True, env=os.environ | {"SCOPE_PREFILL": PREFILL})


def judged(folder: Path) -> dict[Name, list[JudgedPair]]:
    """The judgments of one judge about both sets."""
    found = read_judgments([folder / "evaluation" / "judgments.jsonl"]).pairs
    return {name: [pair for pair in found if pair.dataset == name] for name in NAMES}


def figures(found: Sequence[JudgedPair]) -> dict[str, Any]:
    """Accuracy with its 95% interval, AUROC, position bias, and verdicts at alpha 0.10."""
    scores = bpe(found)
    right = ~scores.error
    n, accuracy = len(right), float(right.mean())
    margin = 1.96 * math.sqrt(accuracy * (1 - accuracy) / n)
    family = np.array([pair.id.partition("-")[0] for pair in found])
    # Positive where the prompt that shows the better response first, or second, is answered right.
    signs = np.array([1 if pair.label == "A" else -1 for pair in found])
    gaps = np.array([pair.gaps for pair in found]) * signs[:, None]
    first_is_a = signs > 0
    return {
        "pairs": n,
        "accuracy": round(accuracy, 4),
        "interval": [round(accuracy - margin, 4), round(accuracy + margin, 4)],
        "auroc": round(auroc(scores.confidence, right) or math.nan, 4),
        "right_if_better_is_first": _share(np.where(first_is_a, gaps[:, 0], gaps[:, 1]) > 0),
        "right_if_better_is_second": _share(np.where(first_is_a, gaps[:, 1], gaps[:, 0]) > 0),
        "label_mass": round(float(np.mean([pair.label_mass for pair in found])), 4),
        "splits": [half_splits(scores.uncertainty, scores.error, alpha) for alpha in ALPHAS],
        "families": {str(name): _share(right[family == name]) for name in sorted(set(family))},
    }


def half_splits(
    uncertainty: FloatArray, error: NDArray[np.bool_], alpha: float
) -> dict[str, float]:
    """Verdicts on a random half of the pairs, calibrated on the other half, over many splits."""
    rng, rows = np.random.default_rng(18), []
    for _ in range(SPLITS):
        order = rng.permutation(len(error))
        labelled, rest = order[: len(order) // 2], order[len(order) // 2 :]
        threshold = ThresholdCurve.fit(uncertainty[labelled], error[labelled]).threshold(alpha)
        accepted = uncertainty[rest] <= threshold
        rows.append((accepted.mean(), error[rest][accepted].sum() / max(accepted.sum(), 1)))
    coverage, wrong = np.array(rows).T
    return {
        "alpha": alpha,
        "splits": SPLITS,
        "coverage": _share(coverage),
        # As in the paper, a split without verdicts has the error 0.
        "error": _share(wrong),
        "without_verdicts": _share(coverage == 0),
    }


def course(log: Path) -> Any:
    """The lines of the training's log; those of the shipped adapter if it was not trained here."""
    if log.exists():
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return json.loads(NUMBERS.read_text(encoding="utf-8"))["training"]


def _share(those: Any) -> float:
    return round(float(np.mean(those)), 4)


def main() -> None:
    """Writes the figures of both judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tuned-training"))
    parser.add_argument("--judged", action="store_true", help="ask no judge: use what --out has")
    asked = parser.parse_args()
    found = {}
    for judge, model in (("original", real_judge()), ("tuned", tuned_judge())):
        folder = asked.out / model.name
        if not asked.judged:
            ask(model, folder)
        found[judge] = {name: figures(own) for name, own in judged(folder).items()}
    content = {"judges": found, "training": course(asked.out / "log.jsonl")}
    NUMBERS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_page()


if __name__ == "__main__":
    main()
