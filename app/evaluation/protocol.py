"""The paper's protocol: seeded random splits, every rule and alpha on each, and the ablations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.core.calibration import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.preference import LN2, FloatArray
from app.evaluation.metrics import RiskCoverage
from app.evaluation.selectors import SELECTORS, Selector, pac, scope

BoolArray = NDArray[np.bool_]
IndexArray = NDArray[np.int64]

# SCOPE, section on experiments (splits), and appendices on ablations.
SPLITS = 1000
ABLATION_SPLITS = 500
ABLATION_ALPHA = 0.10
EXTENDED_ALPHAS = (*STANDARD_ALPHAS, 0.30)
LABEL_NOISES = (0.0, 0.05, 0.10, 0.15, 0.20)
CALIBRATION_SIZES = (50, 100, 200, 500, 1000)
# Fewer pairs measure no risk: one error among them is 2% and more.
FEWEST_TESTED = 50
_ALL = dict[str, Selector](SELECTORS.items())
_SCOPE_ONLY = dict[str, Selector](scope=scope)
# Streams of random numbers that one seed has.
_HALVES, _FLIPS, _OTHER_HALVES = 1, 2, 3


class Points(NamedTuple):
    """What a rule sees of a judge, made by `Points.of`.

    Args:
        uncertainty: Shape (n,). s(x) in nats, ascending.
        error: Shape (n,). True where the judge disagrees with the label or has no preference.
    """

    uncertainty: FloatArray
    error: BoolArray

    @classmethod
    def of(cls, uncertainty: ArrayLike, error: ArrayLike) -> "Points":
        """Sorts once, so that no split has to; tied scores too, whatever the order they came in."""
        score, wrong = np.asarray(uncertainty, dtype=np.float64), np.asarray(error, dtype=bool)
        order = np.lexsort((wrong, score))
        return cls(score[order], wrong[order])

    def at(self, where: IndexArray) -> "Points":
        """The points at some places, still in order."""
        picked = np.zeros(len(self.error), dtype=bool)
        picked[where] = True
        return Points(self.uncertainty[picked], self.error[picked])


@dataclass(frozen=True, slots=True)
class Design:
    """What is asked of the protocol.

    Args:
        seed: The same seed gives the same splits.
        splits: Random halves for each rule and alpha, at least 1.
        ablation_splits: Of the ablations and of transfer, at least 1.
        alphas: Each in (0, 1).
        delta: Of the rules that have one, in (0, 1).

    Raises:
        ValueError: A value is out of range.
    """

    seed: int = 0
    splits: int = SPLITS
    ablation_splits: int = ABLATION_SPLITS
    alphas: tuple[float, ...] = STANDARD_ALPHAS
    delta: float = STANDARD_DELTA

    def __post_init__(self) -> None:
        _check_levels((*self.alphas, self.delta))
        if min(self.splits, self.ablation_splits) < 1:
            raise ValueError(f"{self.splits} and {self.ablation_splits} splits: at least 1 each")


@dataclass(frozen=True, slots=True)
class Row:
    """One rule at one alpha, over all splits."""

    selector: str
    alpha: float
    outcome: RiskCoverage


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One row of an ablation: `value` is the label noise, or the calibration size."""

    value: float
    row: Row


@dataclass(frozen=True, slots=True)
class TransferRow:
    """Calibrated on one benchmark, tested on another, or on the other half of the same."""

    calibration: str
    test: str
    row: Row


class _Split(NamedTuple):
    calibration: Points
    test: Points


def run_protocol(
    points: Points, design: Design, *, selectors: Mapping[str, Selector] = _ALL
) -> tuple[Row, ...]:
    """Calibrates on one random half and tests on the other, many times (SCOPE, risk control).

    A test point is accepted where its uncertainty is at or below the threshold. One without a
    preference has ln 2 and counts as an error, so it is accepted only where everything is; the
    service abstains on it even then.

    Args:
        points: At least 2.
        design: Seed, splits, alphas and delta.
        selectors: By name.

    Returns:
        A row per rule and alpha, in that order.

    Raises:
        ValueError: There are fewer than 2 points, or they are not sorted.
    """
    drawn = _halves(points, design.splits, design.seed)
    return _measured(drawn, selectors, design.alphas, design.delta)


def ablate_label_noise(
    points: Points,
    design: Design,
    *,
    noises: Sequence[float] = LABEL_NOISES,
    alpha: float = ABLATION_ALPHA,
    selectors: Mapping[str, Selector] = _SCOPE_ONLY,
) -> tuple[AblationRow, ...]:
    """Flips a share of the calibration labels and none of the test labels (SCOPE, label noise).

    Every noise sees the same splits. Beside `selectors` come "scope_corrected" and
    "pac_corrected", which know the noise (docs/design/guarantees.md, section 4). A flipped label
    leaves no preference (ln 2) an error, which is right for BPE and not for a method that breaks
    ties.

    Raises:
        ValueError: A noise is outside [0, 0.5), or as for `run_protocol`.
    """
    found = []
    for noise in noises:
        if not 0.0 <= noise < 0.5:
            raise ValueError(f"label noise must be in [0, 0.5), got {noise}")
        rng = np.random.default_rng([design.seed, _FLIPS])
        drawn = (
            _Split(_flipped(split.calibration, noise, rng), split.test)
            for split in _halves(points, design.ablation_splits, design.seed)
        )
        corrected = dict[str, Selector](
            scope_corrected=partial(scope, label_noise=noise),
            pac_corrected=partial(pac, label_noise=noise),
        )
        rows = _measured(drawn, {**selectors, **corrected}, (alpha,), design.delta)
        found += [AblationRow(noise, row) for row in rows]
    return tuple(found)


def ablate_calibration_size(
    points: Points,
    design: Design,
    *,
    sizes: Sequence[int] = CALIBRATION_SIZES,
    alpha: float = ABLATION_ALPHA,
    selectors: Mapping[str, Selector] = _SCOPE_ONLY,
) -> tuple[AblationRow, ...]:
    """Calibrates on n pairs and tests on all others (SCOPE, calibration set size).

    The calibration pairs of a size are among those of each larger one. Sizes that leave fewer than
    50 pairs to test on are left out.

    Raises:
        ValueError: As for `run_protocol`.
    """
    return tuple(
        AblationRow(size, row)
        for size in sizes
        if len(points.error) - size >= FEWEST_TESTED
        for row in _measured(
            _splits(points, size, design.ablation_splits, [design.seed, _HALVES]),
            selectors,
            (alpha,),
            design.delta,
        )
    )


def transfer(
    benchmarks: Mapping[str, Points],
    design: Design,
    *,
    alpha: float = ABLATION_ALPHA,
    selectors: Mapping[str, Selector] = _SCOPE_ONLY,
) -> tuple[TransferRow, ...]:
    """Calibrates on each benchmark and tests on each (SCOPE, cross-benchmark transfer).

    Each split takes a random half of the one and, drawn by itself, a random half of the other; of
    one and the same benchmark these are the two halves of `run_protocol`.

    Raises:
        ValueError: As for `run_protocol`.
    """

    def drawn(calibration: str, test: str) -> Iterator[_Split]:
        stream = _HALVES if calibration == test else _OTHER_HALVES
        ours = _halves(benchmarks[calibration], design.ablation_splits, design.seed)
        theirs = _halves(benchmarks[test], design.ablation_splits, design.seed, stream=stream)
        for one, other in zip(ours, theirs, strict=True):
            yield _Split(one.calibration, other.test)

    return tuple(
        TransferRow(calibration, test, row)
        for calibration in benchmarks
        for test in benchmarks
        for row in _measured(drawn(calibration, test), selectors, (alpha,), design.delta)
    )


def _halves(points: Points, splits: int, seed: int, *, stream: int = _HALVES) -> Iterator[_Split]:
    return _splits(points, len(points.error) // 2, splits, [seed, stream])


def _splits(points: Points, size: int, splits: int, seed: Sequence[int]) -> Iterator[_Split]:
    """Draws `size` points to calibrate on; a seed's order does not depend on the size."""
    n = len(points.error)
    if not 0 < size < n:
        raise ValueError(f"{n} pairs with {size} to calibrate on leave none on one side")
    if (np.diff(points.uncertainty) < 0).any():
        raise ValueError("points are not in ascending order: Points.of sorts them")
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        order = rng.permutation(n)
        yield _Split(points.at(order[:size]), points.at(order[size:]))


def _flipped(points: Points, noise: float, rng: np.random.Generator) -> Points:
    """Flips the labels of a share of the points: what was right is wrong and the reverse."""
    n = len(points.error)
    # Drawn even where nothing is flipped, and a larger share flips what a smaller one does.
    flipped = rng.permutation(n)[: round(noise * n)]
    error = points.error.copy()
    error[flipped] = ~error[flipped] | (points.uncertainty[flipped] >= LN2)
    return Points(points.uncertainty, error)


def _check_levels(levels: Sequence[float]) -> None:
    if not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"alpha and delta must be in (0, 1), got {tuple(levels)}")


def _measured(
    drawn: Iterable[_Split],
    selectors: Mapping[str, Selector],
    alphas: Sequence[float],
    delta: float,
) -> tuple[Row, ...]:
    """Runs every rule at every alpha on every split."""
    _check_levels(alphas)
    asked = [(name, alpha) for name in selectors for alpha in alphas]
    accepted, errors, tested = [], [], []
    for calibration, test in drawn:
        thresholds = [
            selectors[name](*calibration, alpha=alpha, delta=delta) for name, alpha in asked
        ]
        below = np.searchsorted(test.uncertainty, thresholds, side="right")
        accepted.append(below)
        errors.append(np.append(0, np.cumsum(test.error))[below])
        tested.append(len(test.error))
    took, wrong = np.array(accepted), np.array(errors)
    return tuple(
        Row(
            name,
            alpha,
            RiskCoverage.over_splits(took[:, i], wrong[:, i], np.array(tested), alpha=alpha),
        )
        for i, (name, alpha) in enumerate(asked)
    )
