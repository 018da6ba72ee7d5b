"""Judged pairs -> every number of the report."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app import __version__
from app.core.diagnostics import confidence_bins
from app.core.errors import InvalidRequestError
from app.core.preference import LN2
from app.evaluation.benchmarks import data_name
from app.evaluation.judgments import Judged, JudgedPair
from app.evaluation.methods import METHODS, MethodName, MethodScores, available
from app.evaluation.metrics import Quality, quality
from app.evaluation.normal_world import WorldRow, normal_world_rows
from app.evaluation.protocol import (
    AblationRow,
    Design,
    Points,
    Row,
    TransferRow,
    ablate_calibration_size,
    ablate_label_noise,
    run_protocol,
    transfer,
)

# Two to calibrate on and two to test on; fewer say nothing at all.
_FEWEST_PAIRS = 4
_SIGNIFICANT_DIGITS = 6


class Source(NamedTuple):
    """A data set's judged pairs, and what of it was no pair.

    Args:
        pairs: Of one judge.
        ties: Left out: people have no preference there.
        left_out: Rows that are no comparison, by reason.
    """

    pairs: Sequence[JudgedPair]
    ties: int = 0
    left_out: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Verdicts of about the same confidence; one of the ten bins of the ECE.

    Args:
        place: 0 to 9; the bin is (place / 10, (place + 1) / 10].
        confidence: Their mean.
        accuracy: Share of them that is right.
        count: How many, at least 1.
    """

    place: int
    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, slots=True)
class MethodResults:
    """One way to tell how sure the judge is, on one data set.

    Args:
        method: Its name.
        n: Pairs that it has an opinion on.
        unparsed: Pairs whose answers are no opinion.
        failed: Pairs that the judge failed on.
        unparsed_answers: Single answers that did not parse.
        undecided: Pairs without a preference: errors under BPE, never accepted by the service.
        quality: Of its confidence.
        reliability: Bins that are not empty, in ascending order.
        rows: Every rule at every alpha; none with fewer than 4 pairs.
    """

    method: MethodName
    n: int
    unparsed: int
    failed: int
    unparsed_answers: int
    undecided: int
    quality: Quality
    reliability: tuple[ReliabilityBin, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class DatasetResults:
    """A judge on one data set.

    Args:
        name: Of the data set.
        n: Pairs that were judged.
        ties: Left out.
        left_out: Rows that were no comparison, by reason.
        groups: Distinct questions; None where they are not known.
        label_mass: Median over pairs of the probability on the two labels; None where it is not
            known. A judge with little of it was about to say something else.
        methods: Those that there are answers for, in the paper's order.
        label_noise: Of BPE.
        calibration_size: Of BPE.
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


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that an evaluation found.

    Args:
        judge: Its name; None where the file did not say.
        version: Of this package.
        design: What was asked of the protocol.
        datasets: In the order they were given.
        transfer: Between them, of BPE; none with one data set.
        normal_world: The paper's coverages beside those of the model of docs/design/guarantees.md.
    """

    judge: str | None
    version: str
    design: Design
    datasets: tuple[DatasetResults, ...]
    transfer: tuple[TransferRow, ...]
    normal_world: tuple[WorldRow, ...]


def sources_of(
    judged: Judged, file: Path, *, at_most: int, seed: int
) -> tuple[str | None, dict[str, Source]]:
    """The judge's name and the data sets of a file, at most so many pairs of each, drawn.

    Raises:
        InvalidRequestError: There is no pair, or the file is of several judges.
    """
    judges = {pair.judge for pair in judged.pairs}
    if len(judges) > 1:
        names = ", ".join(sorted(name or "an unnamed one" for name in judges))
        raise InvalidRequestError(f"{file} is of several judges ({names}): evaluate one at a time")
    if not judges:
        raise InvalidRequestError(f"{file} has no labelled pair that was judged")
    datasets: dict[str, list[JudgedPair]] = {}
    for pair in judged.pairs:
        datasets.setdefault(pair.dataset or data_name(file), []).append(pair)
    left_out = {f"no {skipped.reason}": 0 for skipped in judged.skipped}
    for skipped in judged.skipped:
        left_out[f"no {skipped.reason}"] += 1
    # What was left out has no data set any more; it is told with the first.
    found = {
        name: Source(_drawn(pairs, at_most, seed), *(() if i else (judged.ties, left_out)))
        for i, (name, pairs) in enumerate(datasets.items())
    }
    return judges.pop(), found


def _drawn(pairs: Sequence[JudgedPair], at_most: int, seed: int) -> list[JudgedPair]:
    if len(pairs) <= at_most:
        return list(pairs)
    drawn = np.random.default_rng(seed).choice(len(pairs), size=at_most, replace=False)
    return [pairs[i] for i in np.sort(drawn)]


def evaluate(
    judge: str | None,
    datasets: Mapping[str, Source],
    design: Design,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Results:
    """Runs the paper's protocol, its ablations and its metrics.

    Args:
        judge: Its name.
        datasets: Judged pairs by the name of the data set.
        design: What is asked of the protocol.
        on_progress: Is told what begins.

    Raises:
        InvalidRequestError: A data set has no answers for any method.
    """
    found, of_bpe = [], {}
    for name, source in datasets.items():
        results, points = _on_dataset(name, source, design, on_progress)
        if not results.methods:
            raise InvalidRequestError(f"{name} has no answers for the methods that are asked for")
        found.append(results)
        if points is not None:
            of_bpe[name] = points
    on_progress("transfer between data sets")
    transferred = transfer(of_bpe, design) if len(of_bpe) > 1 else ()
    on_progress("the paper's coverages")
    return Results(
        judge, __version__, design, tuple(found), transferred, normal_world_rows(seed=design.seed)
    )


def _on_dataset(
    name: str, source: Source, design: Design, on_progress: Callable[[str], None]
) -> tuple[DatasetResults, Points | None]:
    """The results, and the points of BPE for transfer; None where there are too few."""
    methods, bpe = [], None
    for method in available(source.pairs):
        on_progress(f"{name}: {METHODS[method].title}")
        scores = METHODS[method].score(source.pairs)
        points = Points.of(scores.uncertainty, scores.error)
        enough = len(points.error) >= _FEWEST_PAIRS
        rows = run_protocol(points, design) if enough else ()
        methods.append(_on_method(method, scores, rows))
        if method == "bpe" and enough:
            bpe = points
    on_progress(f"{name}: ablations")
    groups = {pair.group for pair in source.pairs}
    masses = [pair.label_mass for pair in source.pairs if pair.label_mass is not None]
    results = DatasetResults(
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
    return results, bpe


def _on_method(method: MethodName, scores: MethodScores, rows: tuple[Row, ...]) -> MethodResults:
    # A score in words of 0.5 or less has ln 2 too, and yet a side.
    undecided = scores.error & (scores.uncertainty >= LN2) if method == "bpe" else np.array(())
    return MethodResults(
        method=method,
        n=len(scores.pairs),
        unparsed=scores.unparsed,
        failed=scores.failed,
        unparsed_answers=scores.unparsed_answers,
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


def to_json(results: Results) -> str:
    """results.json: null where a number does not exist, floats to six significant digits."""
    return json.dumps(_plain(results), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
