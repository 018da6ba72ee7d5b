"""The paper's protocol: seeded random splits, every rule and alpha on each, and the ablations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.core.calibration import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.preference import LN2
from app.evaluation.metrics import RiskCoverage
from app.evaluation.selectors import SELECTORS, Points, RiskTarget, Selector, pac, scope

# SCOPE, section on experiments (splits), and appendices on ablations.
SPLITS = 1000
ABLATION_SPLITS = 500
ABLATION_ALPHA = 0.10
LABEL_NOISES = (0.0, 0.05, 0.10, 0.15, 0.20)
CALIBRATION_SIZES = (50, 100, 200, 500, 1000)
# With fewer test pairs one error changes the risk by more than 2%.
FEWEST_TESTED = 50
# Fewer calibration pairs accept nothing at any alpha below 0.1.
FEWEST_CALIBRATED = 10
_ALL = dict[str, Selector](SELECTORS.items())
_SCOPE_ONLY = dict[str, Selector](scope=scope)
# Independent random streams of one seed.
_HALVES, _FLIPS, _OTHER_HALVES = 1, 2, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """The parameters of the protocol.

    Args:
        splits: Number of random halves for each rule and alpha, at least 1.
        ablation_splits: Number of splits for ablations and transfer, at least 1.
        alphas: Levels to run, each in (0, 1).
        delta: Level of the rules that have a delta, in (0, 1).
    """

    seed: int = 0
    splits: int = SPLITS
    ablation_splits: int = ABLATION_SPLITS
    alphas: tuple[float, ...] = STANDARD_ALPHAS
    delta: float = STANDARD_DELTA


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutcome:
    """One rule at one alpha, over all splits."""

    selector: str
    alpha: float
    outcome: RiskCoverage


@dataclass(frozen=True, kw_only=True, slots=True)
class AblationRow:
    """One row of an ablation; `value` is the label noise or the calibration size."""

    value: float
    row: RuleOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRow:
    """Calibration on one benchmark and test on another, or on the other half of the same one."""

    calibration: str
    test: str
    row: RuleOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class _Split:
    calibration: Points
    test: Points


def run_protocol(
    points: Points, design: Design, *, selectors: Mapping[str, Selector] = _ALL
) -> tuple[RuleOutcome, ...]:
    """Calibrates on one random half and tests on the other, for each split (SCOPE, risk control).

    A test point is accepted if its uncertainty is at or below the threshold. A point without a
    preference has uncertainty ln 2 and counts as an error, so it is accepted only if everything is.
    The service abstains on such a point even then.

    Returns:
        A row for each rule and alpha, in that order.

    Raises:
        ValueError: There are fewer than 2 points, or they are not sorted by `Points.of`.
    """
    splits = _halves(points, design.splits, design.seed)
    return _measured(splits, selectors, design.alphas, design.delta)


def ablate_label_noise(points: Points, design: Design) -> tuple[AblationRow, ...]:
    """Flips a share of the calibration labels and no test label (SCOPE, label noise).

    Every noise uses the same splits. The rules "scope_corrected" and "pac_corrected", which know
    the noise, run beside SCOPE (docs/design/guarantees.md, section 4).
    """
    ablated = []
    for noise in LABEL_NOISES:
        rng = np.random.default_rng([design.seed, _FLIPS])
        splits = (
            _Split(calibration=flipped(split.calibration, noise, rng), test=split.test)
            for split in _halves(points, design.ablation_splits, design.seed)
        )
        rules = dict[str, Selector](
            scope=scope,
            scope_corrected=partial(scope, label_noise=noise),
            pac_corrected=partial(pac, label_noise=noise),
        )
        rows = _measured(splits, rules, (ABLATION_ALPHA,), design.delta)
        ablated += [AblationRow(value=noise, row=row) for row in rows]
    return tuple(ablated)


def ablate_calibration_size(points: Points, design: Design) -> tuple[AblationRow, ...]:
    """Calibrates on n pairs and tests on all others (SCOPE, calibration set size).

    The sizes are the paper's, scaled to fewer points. The calibration pairs of a size are a subset
    of those of each larger size. A size that leaves fewer than 50 pairs to test on is left out.
    """
    return tuple(
        AblationRow(value=size, row=row)
        for size in calibration_sizes(len(points.error))
        if len(points.error) - size >= FEWEST_TESTED
        for row in _measured(
            _splits(points, size, design.ablation_splits, [design.seed, _HALVES]),
            _SCOPE_ONLY,
            (ABLATION_ALPHA,),
            design.delta,
        )
    )


def calibration_sizes(n: int) -> tuple[int, ...]:
    """The paper's sizes; with fewer pairs, the same shares of the largest possible size."""
    largest = n - FEWEST_TESTED
    if largest >= CALIBRATION_SIZES[-1]:
        return CALIBRATION_SIZES
    scaled = (round(size / CALIBRATION_SIZES[-1] * largest) for size in CALIBRATION_SIZES)
    return tuple(dict.fromkeys(size for size in scaled if size >= FEWEST_CALIBRATED))


def transfer(benchmarks: Mapping[str, Points], design: Design) -> tuple[TransferRow, ...]:
    """Calibrates on each benchmark and tests on each (SCOPE, cross-benchmark transfer).

    Each split draws a random half of the calibration benchmark and, independently, a random half of
    the test benchmark. If both are the same benchmark, these are the two halves of `run_protocol`.
    """

    def splits(calibration: str, test: str) -> Iterator[_Split]:
        stream = _HALVES if calibration == test else _OTHER_HALVES
        calibrating = _halves(benchmarks[calibration], design.ablation_splits, design.seed)
        testing = _halves(benchmarks[test], design.ablation_splits, design.seed, stream=stream)
        for one, other in zip(calibrating, testing, strict=True):
            yield _Split(calibration=one.calibration, test=other.test)

    return tuple(
        TransferRow(calibration=calibration, test=test, row=row)
        for calibration in benchmarks
        for test in benchmarks
        for row in _measured(
            splits(calibration, test), _SCOPE_ONLY, (ABLATION_ALPHA,), design.delta
        )
    )


def _halves(points: Points, splits: int, seed: int, *, stream: int = _HALVES) -> Iterator[_Split]:
    return _splits(points, len(points.error) // 2, splits, [seed, stream])


def _splits(points: Points, size: int, splits: int, seed: Sequence[int]) -> Iterator[_Split]:
    """Draws `size` points to calibrate on; the permutations of a seed do not depend on the size."""
    n = len(points.error)
    if not 0 < size < n:
        raise ValueError(f"{n} pairs with {size} to calibrate on leave none on one side")
    if (np.diff(points.uncertainty) < 0).any():
        raise ValueError("points are not in ascending order: Points.of sorts them")
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        order = rng.permutation(n)
        yield _Split(calibration=points.at(order[:size]), test=points.at(order[size:]))


def flipped(points: Points, noise: float, rng: np.random.Generator) -> Points:
    """Flips the labels of a share of the points: right becomes wrong, and wrong becomes right.

    A point without a preference (ln 2) stays an error. That is right for BPE, but not for a method
    that breaks ties.
    """
    n = len(points.error)
    # A permutation is drawn even at noise 0, so that a larger noise flips a superset.
    places = rng.permutation(n)[: round(noise * n)]
    error = points.error.copy()
    error[places] = ~error[places] | (points.uncertainty[places] >= LN2)
    return Points(points.uncertainty, error)


def _measured(
    splits: Iterable[_Split],
    selectors: Mapping[str, Selector],
    alphas: Sequence[float],
    delta: float,
) -> tuple[RuleOutcome, ...]:
    """Runs every rule at every alpha on every split."""
    runs = [(name, alpha) for name in selectors for alpha in alphas]
    accepted, errors, tested = [], [], []
    for split in splits:
        thresholds = [
            selectors[name](split.calibration, RiskTarget(alpha, delta)) for name, alpha in runs
        ]
        below = np.searchsorted(split.test.uncertainty, thresholds, side="right")
        accepted.append(below)
        errors.append(np.append(0, np.cumsum(split.test.error))[below])
        tested.append(len(split.test.error))
    all_accepted, all_errors = np.array(accepted), np.array(errors)
    return tuple(
        RuleOutcome(
            selector=name,
            alpha=alpha,
            outcome=RiskCoverage.over_splits(
                all_accepted[:, i], all_errors[:, i], np.array(tested), alpha=alpha
            ),
        )
        for i, (name, alpha) in enumerate(runs)
    )
