"""The results of an evaluation, and results.json."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.evaluation.methods import MethodName
from app.evaluation.metrics import Quality
from app.evaluation.protocol import AblationRow, Design, RuleOutcome, TransferRow

_SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class ReliabilityBin:
    """One of the ten bins of the ECE, with the verdicts of its range of confidence.

    Args:
        place: Number of the bin, 0 to 9; the bin is (place / 10, (place + 1) / 10].
        count: Number of verdicts, at least 1.
    """

    place: int
    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodResults:
    """One uncertainty method on one data set.

    Args:
        unparsed, failed: As of `MethodScores`.
        undecided: Number of pairs without a preference under BPE, 0 for other methods. They count
            as errors; the service never accepts them.
        reliability: Non-empty bins in ascending order.
        rows: Every rule at every alpha; empty with fewer than 4 pairs.
    """

    method: MethodName
    n: int
    unparsed: int
    failed: int
    undecided: int
    quality: Quality
    reliability: tuple[ReliabilityBin, ...]
    rows: tuple[RuleOutcome, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetResults:
    """A judge on one data set.

    Args:
        n: Number of judged pairs.
        ties: Number of ties, which are left out.
        left_out: Number of other rows that were left out, by reason.
        groups: Number of distinct questions; None if a pair has no group.
        label_mass: Median over pairs of the probability on the two labels; None if unknown. A judge
            with a low value was about to say something other than a label.
        methods: The methods with answers, in the paper's order.
    """

    name: str
    n: int
    ties: int
    left_out: Mapping[str, int]
    groups: int | None
    label_mass: float | None
    methods: tuple[MethodResults, ...]
    label_noise: tuple[AblationRow, ...]
    calibration_size: tuple[AblationRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """All results of an evaluation.

    Args:
        judge: Name of the judge; None if the file does not name it.
        transfer: Transfer of BPE between the data sets; empty with one data set.
    """

    judge: str | None
    version: str
    design: Design
    datasets: tuple[DatasetResults, ...]
    transfer: tuple[TransferRow, ...]


def to_json(results: Results) -> str:
    """The content of results.json: null for a missing number, floats with 6 significant digits."""
    return json.dumps(_plain(results), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
