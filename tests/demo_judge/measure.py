"""Measures a judge of the demo's tasks through a running service, on 2,000 fresh pairs.

make serve                              # in one terminal
.venv/bin/python -m tests.demo_judge.measure    # in another: prints the tables of the README
"""

import argparse
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from app.core.diagnostics import auroc
from app.demo.pairs import FAMILIES, Pair, demo_sets

ALPHAS = (0.05, 0.10, 0.20)
# Alphas of the figure in the README.
_GRID = tuple(i / 200 for i in range(2, 51))
CALIBRATION = "demo-measurement"
_BATCH = 500


@dataclass(frozen=True)
class Measurement:
    """Results of the judge on the fresh pairs.

    Args:
        auroc: AUROC of confidence for right preferences.
        flips: Share of pairs on which the two orders disagree.
        mean_p_first: Mean probability of the response shown first; 0.5 without position bias.
        accepted: Share of pairs with a verdict, by alpha; without alphas that accept nothing.
        error: Share of wrong verdicts among the accepted, by alpha; likewise.
        families: Accuracy by family.
    """

    n: int
    accuracy: float
    auroc: float
    flips: float
    mean_p_first: float
    accepted: dict[float, float]
    error: dict[float, float]
    families: dict[str, float]


def measure(client: httpx.Client, *, pairs: int | None = None) -> Measurement:
    """Calibrates a temporary set with the shipped pairs, then judges all or so many fresh pairs."""
    sets = demo_sets()
    fresh = sets.fresh[:pairs]
    examples = [_comparison(pair) | {"label": pair.label} for pair in sets.calibrate]
    client.delete(f"/calibrations/{CALIBRATION}")
    _post(client, "/calibrate", {"calibration": CALIBRATION, "examples": examples})
    judged = judge(client, fresh, alpha=ALPHAS[0], calibration=CALIBRATION)
    client.delete(f"/calibrations/{CALIBRATION}")

    right = np.array([j["preferred"] == p.label for j, p in zip(judged, fresh, strict=True)])
    accepted = {alpha: np.array([is_accepted(j, alpha) for j in judged]) for alpha in _GRID}
    accepted = {alpha: those for alpha, those in accepted.items() if those.any()}
    p_fwd, p_rev = (np.array([j[name] for j in judged]) for name in ("p_fwd", "p_rev"))
    family = np.array([pair.family for pair in fresh])
    ranked = auroc([j["confidence"] for j in judged], right)
    assert ranked is not None, "AUROC is undefined: all preferences are right, or all are wrong"
    return Measurement(
        n=len(right),
        accuracy=float(right.mean()),
        auroc=ranked,
        flips=float(((p_fwd > 0.5) != (p_rev > 0.5)).mean()),
        mean_p_first=float((p_fwd + 1 - p_rev).mean() / 2),
        accepted={alpha: float(those.mean()) for alpha, those in accepted.items()},
        error={alpha: float(1 - right[those].mean()) for alpha, those in accepted.items()},
        families={name: float(right[family == name].mean()) for name in FAMILIES},
    )


def is_accepted(judgment: dict[str, Any], alpha: float) -> bool:
    """Whether the pair would get a verdict at this alpha, by the judgment's risk level."""
    return judgment["risk_level"] is not None and judgment["risk_level"] <= alpha


def judge(
    client: httpx.Client, chosen: list[Pair], *, alpha: float, calibration: str = "default"
) -> list[dict[str, Any]]:
    """The service's judgments of these pairs."""
    results: list[dict[str, Any]] = []
    for start in range(0, len(chosen), _BATCH):
        comparisons = [_comparison(pair) for pair in chosen[start : start + _BATCH]]
        body = {"alpha": alpha, "calibration": calibration, "comparisons": comparisons}
        results += _post(client, "/judge/batch", body)["results"]
    return results


def _comparison(pair: Pair) -> dict[str, Any]:
    return {
        "question": pair.question,
        "response_a": pair.response_a,
        "response_b": pair.response_b,
    }


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    answer.raise_for_status()
    content: dict[str, Any] = answer.json()
    return content


def report(found: Measurement) -> str:
    """The tables of the README, in Markdown."""
    lines = [
        "| alpha | verdicts given | wrong among them |",
        "|---|---|---|",
        *(_row(found, alpha) for alpha in ALPHAS),
        f"| none | 100.0% | {1 - found.accuracy:.1%} |",
        "",
        f"n = {found.n}, accuracy {found.accuracy:.3f}, AUROC {found.auroc:.3f}, "
        f"orders disagree on {found.flips:.1%}, p(first shown) {found.mean_p_first:.3f}",
        "",
        "| family | accuracy |",
        "|---|---|",
        *(f"| {name} | {value:.3f} |" for name, value in found.families.items()),
    ]
    return "\n".join(lines)


def _row(found: Measurement, alpha: float) -> str:
    if alpha not in found.accepted:
        return f"| {alpha:.2f} | 0.0% | |"
    return f"| {alpha:.2f} | {found.accepted[alpha]:.1%} | {found.error[alpha]:.1%} |"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    with httpx.Client(base_url=parser.parse_args().url, timeout=600) as client:
        print(report(measure(client)))


if __name__ == "__main__":
    main()
