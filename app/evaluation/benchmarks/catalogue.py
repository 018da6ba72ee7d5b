"""Benchmarks by name: the paper's five, the demo pairs, and any file of labeled pairs."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from app.core.comparison import Comparison
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.demo.pairs import demo_sets
from app.evaluation.benchmarks.hub import HUB_BENCHMARKS, hub_pairs
from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair
from app.evaluation.benchmarks.pair_file import benchmark_of_file
from app.evaluation.benchmarks.rows import TIE, LeftOut, RawPair, digest_of
from app.files.checking import Contradictions, checked
from app.files.labeled import read_pairs
from app.files.reading import ENDINGS, InputFormat

_DEMO = "demo"


def benchmark_names() -> tuple[str, ...]:
    """The names that `load_benchmark` accepts."""
    return (*HUB_BENCHMARKS, _DEMO)


def load_benchmark(
    name_or_path: str,
    *,
    source: str | None = None,
    form: InputFormat | None = None,
    contradictions: Contradictions = "drop",
) -> Benchmark:
    """Loads a benchmark by its name, or labeled pairs from a file.

    Args:
        name_or_path: One of `benchmark_names`, or the path of a file of any format that
            `app.files.reading` reads. A row may have an id and a group: rows of one group have the
            same question.
        source: For a benchmark of the paper, a folder with a local copy that
            `datasets.load_dataset` can read. For any other name, a file to load under that name.
        form: How the rows of a file are written; None to recognize it.
        contradictions: The decision about pairs of a file whose labels differ.

    Raises:
        InvalidRequestError: No such benchmark or file exists, it cannot be loaded, or it has no
            labeled pair.
    """
    if name_or_path in HUB_BENCHMARKS:
        return _checked_benchmark(name_or_path, hub_pairs(name_or_path, source))
    if name_or_path == _DEMO and source is None:
        return _demo()
    path = Path(source or name_or_path)
    if not path.is_file():
        raise InvalidRequestError(
            f"{path} is neither a file nor a benchmark; the benchmarks are "
            f"{', '.join(benchmark_names())}"
        )
    rows = checked(read_pairs([path], form or InputFormat()), contradictions)
    name = name_or_path if source else data_name(path)
    return benchmark_of_file(name, rows.labelled, rows.report)


def data_name(file: Path) -> str:
    """The name of a data set that is a file: the file's name without its endings."""
    name = file.name.removesuffix(".gz").removesuffix(".zst")
    ending = next((ending for ending in ENDINGS if name.endswith(ending)), "")
    return name.removesuffix(ending)


def _demo() -> Benchmark:
    """Pairs that were used neither to train nor to calibrate the bundled judge."""
    sets = demo_sets()
    pairs = tuple(
        LabeledPair(
            id=f"demo-{i}",
            group=digest_of(pair.question),
            comparison=Comparison.of(pair.question, pair.response_a, pair.response_b),
            label=pair.label,
        )
        for i, pair in enumerate((*sets.trial, *sets.fresh))
    )
    return Benchmark(name=_DEMO, pairs=pairs, ties=0, left_out={})


def _checked_benchmark(name: str, rows: Iterable[RawPair | LeftOut]) -> Benchmark:
    pairs: dict[str, LabeledPair] = {}
    ties, left_out = 0, Counter[str]()
    for row in rows:
        if isinstance(row, RawPair) and row.label == TIE:
            ties += 1
            continue
        pair = _checked_pair(row) if isinstance(row, RawPair) else row
        if isinstance(pair, LeftOut):
            left_out[pair.reason] += 1
            continue
        if pair.id in pairs:
            raise InvalidRequestError(f"{name} has the id {pair.id!r} twice: ids must differ")
        pairs[pair.id] = pair
    if not pairs:
        rest = ", ".join(f"{n} with {reason}" for reason, n in left_out.items()) or "no other row"
        raise InvalidRequestError(f"{name} has no labeled pair: {ties} ties, {rest}")
    return Benchmark(name=name, pairs=tuple(pairs.values()), ties=ties, left_out=dict(left_out))


def _checked_pair(row: RawPair) -> LabeledPair | LeftOut:
    try:
        comparison = Comparison(row.question, row.response_a, row.response_b)
    except InvalidComparisonError as exc:
        return LeftOut(reason=exc.detail)
    if row.label == "A":
        return LabeledPair(id=row.id, group=row.group, comparison=comparison, label="A")
    if row.label == "B":
        return LabeledPair(id=row.id, group=row.group, comparison=comparison, label="B")
    return LeftOut(reason="an unknown label")
