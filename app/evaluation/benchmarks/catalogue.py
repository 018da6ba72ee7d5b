"""Benchmarks by name: the paper's five, the demo pairs, and any file of labeled pairs."""

from collections.abc import Sequence
from pathlib import Path

from app.core.comparison import Comparison
from app.core.errors import InvalidRequestError
from app.demo.pairs import demo_sets
from app.evaluation.benchmarks.hub import HUB_BENCHMARKS, hub_benchmark
from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair, digest_of
from app.files.checking import LabelReport, checked
from app.files.labeled import FilePair, read_pairs
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
) -> Benchmark:
    """Loads a benchmark by its name, or labeled pairs from a file.

    Args:
        name_or_path: One of `benchmark_names`, or the path of a file of any format that
            `app.files.reading` reads. A row may have an id and a group: rows of one group have the
            same question.
        source: For a benchmark of the paper, a folder with a local copy that
            `datasets.load_dataset` can read. For any other name, a file to load under that name.

    Raises:
        InvalidRequestError: No such benchmark or file exists, it cannot be loaded, or it has no
            labeled pair.
    """
    if name_or_path in HUB_BENCHMARKS:
        return hub_benchmark(name_or_path, source)
    if name_or_path == _DEMO and source is None:
        return _demo()
    path = Path(source or name_or_path)
    if not path.is_file():
        raise InvalidRequestError(
            f"{path} is neither a file nor a benchmark; the benchmarks are "
            f"{', '.join(benchmark_names())}"
        )
    rows, report = checked(read_pairs([path], form or InputFormat()))
    return _of_file(name_or_path if source else data_name(path), rows, report)


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


def _of_file(name: str, rows: Sequence[FilePair], report: LabelReport) -> Benchmark:
    pairs: dict[str, LabeledPair] = {}
    for row in rows:
        if row.label is None or row.label == "tie":
            continue
        assert row.comparison is not None, "a row that counts has texts"
        pair_id, group = (
            None if row.row.fields.get(key) is None else str(row.row.fields[key])
            for key in ("id", "group")
        )
        pair = LabeledPair(
            # "pairs.jsonl, line 7" -> "line-7".
            id=pair_id or row.place.rpartition(", ")[2].replace(" ", "-"),
            group=group or digest_of(row.comparison.question),
            comparison=row.comparison,
            label=row.label,
        )
        if pair.id in pairs:
            raise InvalidRequestError(f"{name} has the id {pair.id!r} twice: ids must differ")
        pairs[pair.id] = pair
    if not pairs:
        raise InvalidRequestError(f"{name} has no labeled pair: {report.sentence}")
    return Benchmark(
        name=name,
        pairs=tuple(pairs.values()),
        ties=report.ties,
        left_out=report.left_out,
        report=report,
    )
