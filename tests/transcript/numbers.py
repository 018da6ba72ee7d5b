"""Thresholds, ratings and evaluations of seeded data."""

import json
import math
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from app.core.pac import pac_threshold
from app.core.preference import preference_from_gaps
from app.core.thresholds import ThresholdCurve
from tests.transcript.walk import ALPHAS, SCOPE_JUDGE, examples

_SETS = 20
_VIEWS = ("accepted", "soft", "abstain_as_tie", "debiased")
_RATING = ("score", "low", "high", "rank", "rank_low", "rank_high")


def thresholds() -> dict[str, Any]:
    """lambda_hat of seeded sets at five alphas under both guarantees, and some risk levels."""
    answers: dict[str, Any] = {}
    for seed in range(_SETS):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 1500))
        gaps = rng.normal(0.0, 2.0, (2, n))
        if seed % 4 == 0:
            gaps = np.round(gaps)
        preferences = preference_from_gaps(gaps[0], gaps[1])
        sure = np.maximum(preferences.p_bar, 1.0 - preferences.p_bar)
        error = rng.random(n) > sure ** (0.4 + 0.1 * (seed % 5))
        curve = ThresholdCurve.fit(preferences.entropy, error)
        answers[f"threshold set {seed}"] = {
            "marginal": [_number(curve.threshold(alpha)) for alpha in ALPHAS],
            "pac": [
                _number(pac_threshold(preferences.entropy, error, alpha=alpha, delta=0.1))
                for alpha in ALPHAS
            ],
            "risk_level": [_number(curve.risk_level(s)) for s in (0.05, 0.3, 0.6)],
            "p_bar": [_number(float(p)) for p in preferences.p_bar[:3]],
        }
    return answers


def leaderboard(folder: Path) -> dict[str, Any]:
    """Ratings of a seeded arena with a judge, of which a tenth has labels."""
    rng = random.Random(11)
    strength = {f"model-{place}": 0.6 * place - 1.2 for place in range(5)}
    rows = []
    for number in range(1500):
        a, b = rng.sample(sorted(strength), 2)
        gap = strength[a] - strength[b]
        a_wins = rng.random() < 1.0 / (1.0 + math.exp(-gap))
        signal = gap + (1.9 if a_wins else -1.9) + rng.gauss(0.0, 1.95)
        p_bar = 1.0 / (1.0 + math.exp(-signal))
        accepted = max(p_bar, 1.0 - p_bar) > 0.8
        verdict = "model_a" if p_bar > 0.5 else "model_b"
        labeled = rng.random() < 0.1
        rows.append(
            {
                "id": f"battle-{number}",
                "question_id": f"question-{number // 3}",
                "model_a": a,
                "model_b": b,
                "winner": verdict if accepted else "abstain",
                "reason": None if accepted else "uncertain",
                "p_bar": round(p_bar, 6),
                "alpha": 0.1,
                "judge": "seeded",
                "signature": "judge=seeded fingerprint=0 calibration=default v1",
                "human": ("model_a" if a_wins else "model_b") if labeled else None,
                "human_probability": 0.1,
            }
        )
    results = _run(folder, "leaderboard", rows, "--rounds", "100")
    return {
        f"leaderboard {view} {rating['model']}": {
            name: _number(rating[name], digits=4) for name in _RATING
        }
        for view in _VIEWS
        for rating in results["views"][view]["ratings"]
    }


def evaluation(folder: Path) -> dict[str, Any]:
    """The paper's protocol on a seeded table, with the scripted judge."""
    results = _run(folder, "evaluate", examples(400, seed=6), "--splits", "50")
    answers: dict[str, Any] = {}
    for data in results["datasets"]:
        answers["evaluate pairs"] = {"n": data["n"], "ties": data["ties"]}
        for method in data["methods"]:
            name = method["method"]
            quality = method["quality"].items()
            answers[f"evaluate {name}"] = {key: _number(value) for key, value in quality}
            for row in method["rows"]:
                key = f"evaluate {name} {row['selector']} {row['alpha']}"
                outcome = row["outcome"]
                answers[key] = {part: _number(outcome[part]) for part in ("coverage", "risk")}
    return answers


def _run(folder: Path, command: str, rows: list[dict[str, Any]], *options: str) -> Any:
    """The results.json of a command for these rows."""
    file, out = folder / f"{command}.jsonl", folder / command
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    subprocess.run(
        [SCOPE_JUDGE, command, str(file), "--out", str(out), *options],
        env={**os.environ, "SCOPE_ENGINE": "scripted"},
        capture_output=True,
        check=True,
    )
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def _number(value: float | None, *, digits: int = 6) -> float | str | None:
    if value is None or math.isfinite(value):
        return None if value is None else float(f"{value:.{digits}g}")
    return str(value)
