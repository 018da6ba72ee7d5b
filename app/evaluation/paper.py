"""The numbers of the SCOPE paper's tables, found by our names.

`paper_tables.json` has the tables as printed, with the paper's names and the label of each table. A
lookup returns None if the paper does not have the number.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from app.core.comparison import STANDARD_ALPHAS
from app.evaluation.metrics import Quality

_FILE = Path(__file__).with_name("paper_tables.json")

# Every risk table of the paper is at this alpha; its text has ten coverages at other alphas.
ALPHA = 0.10
# Data sets whose figure in the paper has a larger alpha than the standard ones.
_EXTENDED, _EXTENDED_ALPHA = ("judge-bench", "pku-safe-rlhf"), 0.30
# The uncertainty method that each rule of the risk tables uses (SCOPE, footnote on baselines, and
# appendix on Trust-or-Escalate).
SIGNALS: Mapping[str, Literal["predictive_probability", "simulated_annotators", "bpe"]] = (
    MappingProxyType(
        {
            "vanilla": "predictive_probability",
            "heuristic": "predictive_probability",
            "naive": "predictive_probability",
            "trust_or_escalate": "simulated_annotators",
            "scope": "bpe",
        }
    )
)

_QWEN_7B, _QWEN_14B = "Qwen2.5-7B-Instruct", "Qwen2.5-14B-Instruct"
_QWEN_32B, _LLAMA_70B = "Qwen2.5-32B-Instruct", "Llama-3.1-70B-Instruct"
_SKYWORK = "Skywork-Critic-Llama-3.1-8B"
# Model ids in lower case, the paper's short names, and the first name of the Llama model.
_MODELS = {
    **{name.lower(): name for name in (_QWEN_7B, _QWEN_14B, _QWEN_32B, _LLAMA_70B, _SKYWORK)},
    **{"qwen-7b": _QWEN_7B, "qwen-14b": _QWEN_14B, "qwen-32b": _QWEN_32B, "llama-70b": _LLAMA_70B},
    **{"meta-llama-3.1-70b-instruct": _LLAMA_70B},
}
_DATASETS = {
    "MT-Bench": "mt-bench",
    "RewardBench": "reward-bench",
    "Chatbot Arena": "chatbot-arena",
    "Arena": "chatbot-arena",
    "JudgeBench": "judge-bench",
    "PKU-SafeRLHF": "pku-safe-rlhf",
}
_METHODS = {
    "Predictive Probability": "predictive_probability",
    "Verbalized Confidence": "verbalized_confidence",
    "Swap-and-Aggregate": "swap_and_aggregate",
    "Simulated Annotators": "simulated_annotators",
    "Self-Consistency (k{=}5)": "self_consistency",
    "BPE (Ours)": "bpe",
    "BPE": "bpe",
    "ToE (SimAnnot-Maj)": "trust_or_escalate",
    "SCOPE (Ours)": "scope",
}
# In order of preference: the table without accuracy is last.
_QUALITY_TABLES = (
    "uncertainty",
    "uncertainty_extended",
    "skywork_uncertainty",
    "self_consistency",
    "simulated_annotators",
)
# In order of preference: the table that has only coverages is last.
_RISK_TABLES = (
    "risk_coverage",
    "risk_coverage_extended",
    "skywork_risk",
    "trust_or_escalate",
    "coverage_by_alpha",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperOutcome:
    """Means over splits, as printed; None for numbers that the paper does not print."""

    coverage: float
    risk: float | None
    coverage_std: float | None = None
    risk_std: float | None = None


def source() -> str:
    """The paper's title, authors and venue."""
    return str(tables()["source"]["paper"])


def paper_judge(name: str | None) -> str | None:
    """The paper's name of a judge.

    Args:
        name: A model id or path, of which only the last part is compared, without regard to case.
    """
    if not name:
        return None
    return _MODELS.get(name.rstrip("/").rpartition("/")[2].lower())


def alphas(datasets: Iterable[str]) -> tuple[float, ...]:
    """The alphas at which the paper evaluates any of these data sets; the standard ones for others.

    SCOPE, section on experiments, and figure extended_validity.
    """
    extended = any(dataset in _EXTENDED for dataset in datasets)
    return (*STANDARD_ALPHAS, _EXTENDED_ALPHA) if extended else STANDARD_ALPHAS


def quality(judge: str | None, dataset: str, method: str) -> Quality | None:
    """A row of the tables on uncertainty; they have no accuracy for Simulated Annotators."""
    return _qualities().get((paper_judge(judge), dataset, method))


def outcome(
    judge: str | None, dataset: str, selector: str, *, signal: str, alpha: float
) -> PaperOutcome | None:
    """A printed outcome of a rule; None if the paper uses another signal for the rule."""
    if SIGNALS.get(selector) != signal:
        return None
    return _outcomes().get((paper_judge(judge), dataset, selector, alpha))


def label_noise(judge: str | None, dataset: str, noise: float) -> PaperOutcome | None:
    """SCOPE at alpha 0.10 with a share of the calibration labels flipped."""
    return _ablated("label_noise", "epsilon").get((paper_judge(judge), dataset, noise))


def calibration_size(judge: str | None, dataset: str, size: float) -> PaperOutcome | None:
    """SCOPE at alpha 0.10, calibrated on `size` pairs."""
    return _ablated("calibration_size", "n").get((paper_judge(judge), dataset, size))


def transfer(judge: str | None, calibration: str, test: str) -> PaperOutcome | None:
    """SCOPE at alpha 0.10, calibrated on one data set and tested on another."""
    return _transfers().get((paper_judge(judge), calibration, test))


@cache
def tables() -> dict[str, Any]:
    """The tables as printed, by our names of them: "columns" and "rows"."""
    tables: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return tables


def _rows(table: str) -> Iterator[dict[str, Any]]:
    """The rows of a table, with our names instead of the paper's."""
    for cells in tables()[table]["rows"]:
        row = dict(zip(tables()[table]["columns"], cells, strict=True))
        row["judge"] = _MODELS[row["judge"].lower()]
        for column in {"dataset", "calibration", "test"} & row.keys():
            row[column] = _DATASETS[row[column]]
        if "method" in row:
            row["method"] = _METHODS[row["method"]]
        yield row


@cache
def _qualities() -> Mapping[tuple[str | None, str, str], Quality]:
    qualities: dict[tuple[str | None, str, str], Quality] = {}
    for row in (row for table in _QUALITY_TABLES for row in _rows(table)):
        figures = Quality(
            accuracy=row.get("accuracy"), ece=row["ece"], auroc=row["auroc"], auprc=row["auprc"]
        )
        qualities.setdefault((row["judge"], row["dataset"], row["method"]), figures)
    return MappingProxyType(qualities)


@cache
def _outcomes() -> Mapping[tuple[str | None, str, str, float], PaperOutcome]:
    outcomes: dict[tuple[str | None, str, str, float], PaperOutcome] = {}
    for row in (row for table in _RISK_TABLES for row in _rows(table)):
        selector = row.get("selector") or row.get("method") or "scope"
        place = (row["judge"], row["dataset"], selector.lower(), row["alpha"])
        outcomes.setdefault(place, _outcome(row))
    return MappingProxyType(outcomes)


@cache
def _ablated(table: str, column: str) -> Mapping[tuple[str | None, str, float], PaperOutcome]:
    rows = _rows(table)
    outcomes = {(row["judge"], row["dataset"], row[column]): _outcome(row) for row in rows}
    return MappingProxyType(outcomes)


@cache
def _transfers() -> Mapping[tuple[str | None, str, str], PaperOutcome]:
    rows = _rows("cross_benchmark")
    outcomes = {(row["judge"], row["calibration"], row["test"]): _outcome(row) for row in rows}
    return MappingProxyType(outcomes)


def _outcome(row: Mapping[str, Any]) -> PaperOutcome:
    return PaperOutcome(
        coverage=row["coverage"],
        risk=row.get("risk"),
        coverage_std=row.get("coverage_std"),
        risk_std=row.get("risk_std"),
    )
