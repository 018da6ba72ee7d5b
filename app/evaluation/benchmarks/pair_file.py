"""Labeled pairs in a user's file of any format."""

from collections.abc import Sequence

from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair
from app.evaluation.benchmarks.rows import digest_of
from app.files.checking import LabelReport
from app.files.labeled import FilePair


def benchmark_of_file(name: str, rows: Sequence[FilePair], report: LabelReport) -> Benchmark:
    """The labeled pairs of a file as a benchmark.

    Args:
        name: Name of the data set.
        rows: The rows of the file that count.
        report: The outcome of the check of all rows.

    Raises:
        InvalidRequestError: There is no pair with a side, or two pairs have one id.
    """
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
