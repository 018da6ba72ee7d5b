"""Several judges on the pairs that all of them judged: which one to use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from app.core.errors import InvalidRequestError
from app.evaluation.judgments.jsonl import LOG_NAME, read_judgments
from app.evaluation.judgments.record import JudgedPair
from app.evaluation.measurement import sources_of
from app.evaluation.methods import METHODS
from app.evaluation.metrics import Quality, quality
from app.evaluation.protocol import Design, RuleOutcome, run_protocol
from app.evaluation.selectors import SELECTORS, Points

_RULES = {name: SELECTORS[name] for name in ("scope", "pac")}
# A judge is calibrated on half of the common pairs and tested on the other half.
_FEWEST_PAIRS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedJudge:
    """A judge on the common pairs of a data set.

    Args:
        name: Name of the judge.
        quality: Quality of BPE.
        rows: SCOPE and pac at every alpha.
    """

    name: str
    quality: Quality
    rows: tuple[RuleOutcome, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedDataset:
    """The judges on one data set, in the order given."""

    name: str
    n: int
    judges: tuple[ComparedJudge, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    judge: str
    pairs: Mapping[str, Sequence[JudgedPair]]


def compare(
    folders: Sequence[Path], design: Design, *, at_most: int
) -> tuple[ComparedDataset, ...]:
    """Compares judges on each data set that all of them judged.

    Args:
        folders: Folders that `evaluate` wrote, or files of judgments; at least two.
        design: Splits, alphas, delta and seed.
        at_most: Largest number of pairs of a data set of one judge.

    Raises:
        InvalidRequestError: There are fewer than two folders, one cannot be read, two have the same
            judge, or the judges have too few pairs in common.
    """
    if len(folders) < 2:
        raise InvalidRequestError("a comparison needs at least two folders that evaluate wrote")
    runs = [_run(folder, at_most=at_most, seed=design.seed) for folder in folders]
    judges = [run.judge for run in runs]
    if len(set(judges)) < len(judges):
        raise InvalidRequestError(
            f"two of the folders have results of the same judge: {', '.join(judges)}"
        )
    names = [name for name in runs[0].pairs if all(name in run.pairs for run in runs)]
    datasets = [_dataset(name, runs, design) for name in names]
    known = tuple(dataset for dataset in datasets if dataset is not None)
    if not known:
        raise InvalidRequestError(
            f"{', '.join(judges)} have fewer than {_FEWEST_PAIRS} judged pairs in common: evaluate "
            "them on the same data, with the same --seed and --limit"
        )
    return known


def _run(folder: Path, *, at_most: int, seed: int) -> _Run:
    file = folder / LOG_NAME if folder.is_dir() else folder
    judge, sources = sources_of(read_judgments([file]), file, at_most=at_most, seed=seed)
    return _Run(
        judge=judge or folder.name,
        pairs={name: source.pairs for name, source in sources.items()},
    )


def _dataset(name: str, runs: Sequence[_Run], design: Design) -> ComparedDataset | None:
    """The judges on the pairs that BPE scores for all of them; None with fewer than 4."""
    scored = [_scored(run.pairs[name]) for run in runs]
    common = reduce(lambda ids, pairs: [id for id in ids if id in pairs], scored, list(scored[0]))
    first = [scored[0][id] for id in common]
    if len(common) < _FEWEST_PAIRS:
        return None
    for run, pairs in zip(runs, scored, strict=True):
        if any(pairs[one.id].label != one.label for one in first):
            raise InvalidRequestError(
                f"{name}: {run.judge} and {runs[0].judge} have different labels for the same ids: "
                "evaluate them on the same data"
            )
    judges = []
    for run, pairs in zip(runs, scored, strict=True):
        scores = METHODS["bpe"].score([pairs[id] for id in common])
        points = Points.of(scores.uncertainty, scores.error)
        judge = ComparedJudge(
            name=run.judge,
            quality=quality(scores.confidence, scores.error),
            rows=run_protocol(points, design, selectors=_RULES),
        )
        judges.append(judge)
    return ComparedDataset(name=name, n=len(common), judges=tuple(judges))


def _scored(pairs: Sequence[JudgedPair]) -> dict[str, JudgedPair]:
    """The pairs that BPE scores, by id."""
    return {pairs[place].id: pairs[place] for place in METHODS["bpe"].score(pairs).pairs}
