"""The measurement of a judge: judged pairs in, results out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app import __version__
from app.core.diagnostics import confidence_bins
from app.core.errors import InvalidRequestError
from app.core.preference import LN2
from app.evaluation.benchmarks.catalogue import data_name
from app.evaluation.judgments.jsonl import Judged
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.methods import METHODS, MethodName, MethodScores, available
from app.evaluation.metrics import quality
from app.evaluation.protocol import (
    Design,
    RuleOutcome,
    ablate_calibration_size,
    ablate_label_noise,
    run_protocol,
    transfer,
)
from app.evaluation.results import DatasetResults, MethodResults, ReliabilityBin, Results
from app.evaluation.selectors import Points

# Two pairs to calibrate on and two to test on.
_FEWEST_PAIRS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedDataset:
    """The judged pairs of a data set by one judge, and the rows that were left out.

    Args:
        ties: Number of ties; people have no preference there.
        left_out: Number of other rows that were left out, by reason.
    """

    pairs: Sequence[JudgedPair]
    ties: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


def sources_of(
    judged: Judged, file: Path, *, at_most: int, seed: int
) -> tuple[str | None, dict[str, JudgedDataset]]:
    """Splits a file of judged pairs into its data sets.

    Args:
        judged: Content of the file.
        file: Path of the file; names the data set of pairs that do not name theirs.
        at_most: Largest number of pairs of a data set; more are drawn at random by the seed.
        seed: Seed of that draw.

    Returns:
        The judge's name, None if the file does not name it, and the data sets by name.

    Raises:
        InvalidRequestError: The file has no judged pair, or answers of several judges.
    """
    judged.check_one_judge(file)
    if not judged.pairs:
        raise InvalidRequestError(
            f"{file} has no labeled pair that was judged: there are {judged.report.sentence}"
        )
    datasets: dict[str, list[JudgedPair]] = {}
    for pair in judged.pairs:
        datasets.setdefault(pair.dataset or data_name(file), []).append(pair)
    # The data set of a line that was left out is unknown; the first one reports all of them.
    first = next(iter(datasets))
    judged_datasets = {
        name: JudgedDataset(
            pairs=_drawn(pairs, at_most, seed),
            ties=judged.report.ties if name == first else 0,
            left_out=judged.report.left_out if name == first else {},
        )
        for name, pairs in datasets.items()
    }
    return judged.pairs[0].judge, judged_datasets


def _drawn(pairs: Sequence[JudgedPair], at_most: int, seed: int) -> list[JudgedPair]:
    if len(pairs) <= at_most:
        return list(pairs)
    drawn = np.random.default_rng(seed).choice(len(pairs), size=at_most, replace=False)
    return [pairs[i] for i in np.sort(drawn)]


def measure(
    judge: str | None,
    datasets: Mapping[str, JudgedDataset],
    design: Design,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Results:
    """Runs the paper's protocol, ablations and metrics; `on_progress` gets the name of each step.

    Raises:
        InvalidRequestError: A data set has no answers for any of the methods.
    """
    measured, of_bpe = [], {}
    for name, source in datasets.items():
        results, points = _measure_dataset(name, source, design, on_progress)
        if not results.methods:
            raise InvalidRequestError(f"{name} has no answers for any of the methods")
        measured.append(results)
        if points is not None:
            of_bpe[name] = points
    on_progress("transfer between data sets")
    transferred = transfer(of_bpe, design) if len(of_bpe) > 1 else ()
    return Results(
        judge=judge,
        version=__version__,
        design=design,
        datasets=tuple(measured),
        transfer=transferred,
    )


def _measure_dataset(
    name: str, source: JudgedDataset, design: Design, on_progress: Callable[[str], None]
) -> tuple[DatasetResults, Points | None]:
    """The results, and the points of BPE for transfer; None if there are fewer than 4 points."""
    methods, bpe = [], None
    for method in available(source.pairs):
        scores = METHODS[method].score(source.pairs)
        on_progress(f"{name}: {METHODS[method].title}")
        points = Points.of(scores.uncertainty, scores.error)
        enough = len(points.error) >= _FEWEST_PAIRS
        rows = run_protocol(points, design) if enough else ()
        methods.append(_method_results(method, scores, rows))
        if method == "bpe" and enough:
            bpe = points
    on_progress(f"{name}: ablations")
    groups = {pair.group for pair in source.pairs}
    masses = [pair.label_mass for pair in source.pairs if pair.label_mass is not None]
    measured = DatasetResults(
        name=name,
        n=len(source.pairs),
        ties=source.ties,
        left_out=dict(source.left_out),
        groups=None if None in groups else len(groups),
        label_mass=float(np.median(masses)) if masses else None,
        methods=tuple(methods),
        label_noise=ablate_label_noise(bpe, design) if bpe else (),
        calibration_size=ablate_calibration_size(bpe, design) if bpe else (),
    )
    return measured, bpe


def _method_results(
    method: MethodName, scores: MethodScores, rows: tuple[RuleOutcome, ...]
) -> MethodResults:
    # Only under BPE: a verbalized confidence of at most 0.5 has ln 2 too, but has a side.
    undecided = scores.error & (scores.uncertainty >= LN2) if method == "bpe" else np.array(())
    return MethodResults(
        method=method,
        n=len(scores.pairs),
        unparsed=scores.unparsed,
        failed=scores.failed,
        undecided=int(undecided.sum()),
        quality=quality(scores.confidence, scores.error),
        reliability=_reliability(scores),
        rows=rows,
    )


def _reliability(scores: MethodScores) -> tuple[ReliabilityBin, ...]:
    bins = confidence_bins(scores.confidence)
    return tuple(
        ReliabilityBin(
            place=int(m),
            confidence=float(scores.confidence[bins == m].mean()),
            accuracy=float(1.0 - scores.error[bins == m].mean()),
            count=int((bins == m).sum()),
        )
        for m in np.unique(bins)
    )
