"""The numbers of the SCOPE paper's tables, found by our names.

`paper_tables.json` has the numbers as printed and the label of each table, with our names of data
sets, methods and rules. A lookup returns None if the paper does not have the number.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

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

# The first name of the Llama model.
_ALIASES = {"meta-llama-3.1-70b-instruct": "Llama-3.1-70B-Instruct"}
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


class PaperOutcome(NamedTuple):
    """Means over splits, as printed; None for a risk that the paper does not print."""

    coverage: float
    risk: float | None


def source() -> str:
    """The paper's title, authors and venue."""
    return str(_tables()["source"]["paper"])


def paper_judge(name: str | None) -> str | None:
    """The paper's name of a judge: the last part of a model id or path is compared, in any case."""
    if not name:
        return None
    return _judges().get(name.rstrip("/").rpartition("/")[2].lower())


def alphas(datasets: Iterable[str]) -> tuple[float, ...]:
    """The paper's alphas for any of these data sets, or the standard ones.

    SCOPE, section on experiments, and figure extended_validity.
    """
    extended = any(dataset in _EXTENDED for dataset in datasets)
    return (*STANDARD_ALPHAS, _EXTENDED_ALPHA) if extended else STANDARD_ALPHAS


def quality(judge: str | None, dataset: str, method: str) -> Quality | None:
    """A row of the tables on uncertainty; they have no accuracy for Simulated Annotators."""
    row = _row(_QUALITY_TABLES, judge, dataset=dataset, method=method)
    if row is None:
        return None
    return Quality(
        accuracy=row.get("accuracy"), ece=row["ece"], auroc=row["auroc"], auprc=row["auprc"]
    )


def outcome(
    judge: str | None, dataset: str, selector: str, *, signal: str, alpha: float
) -> PaperOutcome | None:
    """A printed outcome of a rule; None if the paper uses another signal for the rule."""
    if SIGNALS.get(selector) != signal:
        return None
    return _outcome(_row(_RISK_TABLES, judge, dataset=dataset, selector=selector, alpha=alpha))


def label_noise(judge: str | None, dataset: str, noise: float) -> PaperOutcome | None:
    """SCOPE at alpha 0.10 with a share of the calibration labels flipped."""
    return _outcome(_row(("label_noise",), judge, dataset=dataset, value=noise))


def calibration_size(judge: str | None, dataset: str, size: float) -> PaperOutcome | None:
    """SCOPE at alpha 0.10, calibrated on `size` pairs."""
    return _outcome(_row(("calibration_size",), judge, dataset=dataset, value=size))


def transfer(judge: str | None, calibration: str, test: str) -> PaperOutcome | None:
    """SCOPE at alpha 0.10, calibrated on one data set and tested on another."""
    return _outcome(_row(("cross_benchmark",), judge, calibration=calibration, test=test))


def _outcome(row: Mapping[str, Any] | None) -> PaperOutcome | None:
    return None if row is None else PaperOutcome(row["coverage"], row.get("risk"))


def _row(tables: Iterable[str], judge: str | None, **cells: str | float) -> dict[str, Any] | None:
    """The first row of any of the tables with these cells."""
    cells["judge"] = paper_judge(judge) or ""
    rows = (row for table in tables for row in _rows(table))
    return next((row for row in rows if cells.items() <= row.items()), None)


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return tables


@cache
def _rows(table: str) -> list[dict[str, Any]]:
    columns, rows = _tables()[table]["columns"], _tables()[table]["rows"]
    return [dict(zip(columns, cells, strict=True)) for cells in rows]


@cache
def _judges() -> Mapping[str, str]:
    """The judges of the paper, by their names in lower case."""
    judges = {row["judge"] for table in (*_QUALITY_TABLES, *_RISK_TABLES) for row in _rows(table)}
    return {name.lower(): name for name in judges} | _ALIASES
