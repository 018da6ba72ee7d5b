"""A folder of `evaluate` belongs to one judge and its data: another run must not replace a report.

More methods, more pairs, more data sets, other alphas, corrected labels and a few corrected texts
are the same run.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labelled_pairs import Benchmark
from app.evaluation.judgments.record import JudgedPair

LOG_NAME = "judgments.jsonl"
RESULTS_NAME = "results.json"

# Below this share of judged pairs that are still in the data, the data is another one. People
# correct texts and remove pairs, but hardly half of them.
_LEAST_COMMON = 0.5


def check_report(folder: Path, judge: str | None, datasets: Collection[str]) -> None:
    """Checks that the report in a folder, if there is one, is of this judge and these data sets.

    Args:
        folder: Folder of the run.
        judge: Name of the judge; None if nothing names it.
        datasets: Names of the data sets of this run. More than in the report are fine.

    Raises:
        InvalidRequestError: The folder has the report of another run.
    """
    file = folder / RESULTS_NAME
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        theirs, of_judge = [str(dataset["name"]) for dataset in report["datasets"]], report["judge"]
    except FileNotFoundError:
        return
    except OSError as exc:
        raise InvalidRequestError(f"{file} cannot be read: {exc.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidRequestError(
            f"{file} was not written by evaluate: give another --out"
        ) from None
    if of_judge != judge or not set(theirs) <= set(datasets):
        raise InvalidRequestError(
            f"{folder} has the report of {_run(of_judge, theirs)}, and this run is of "
            f"{_run(judge, datasets)}: give another --out, or delete that folder"
        )


def check_foreign_log(folder: Path, judged: Path) -> None:
    """Checks that a file of judgments is not reported in the folder of another run.

    Raises:
        InvalidRequestError: The folder has judgments that are not this file.
    """
    log = folder / LOG_NAME
    if log.exists() and not log.samefile(judged):
        raise InvalidRequestError(
            f"{folder} has the judgments of another run than {judged}: give another --out"
        )


def check_same_data(
    known: Iterable[JudgedPair], benchmarks: Sequence[Benchmark], folder: Path
) -> None:
    """Checks that the judgments in a folder are about the data of this run.

    Args:
        known: Content of the folder's judgments.jsonl.
        benchmarks: All pairs of the data sets of this run.
        folder: Folder of the run, for the message.

    Raises:
        InvalidRequestError: A data set of the judgments is not in this run, or most of its judged
            pairs are not in the data set of this name.
    """
    judged: defaultdict[str, list[JudgedPair]] = defaultdict(list)
    for pair in known:
        judged[pair.dataset].append(pair)
    ours = {benchmark.name: benchmark for benchmark in benchmarks}
    for name, pairs in judged.items():
        if name not in ours:
            raise InvalidRequestError(
                f"{folder} has judgments on {name}, and this run is on {', '.join(ours)}: give "
                f"another --out, or add {name} to the data"
            )
        # Pairs are judged in a random order of the responses.
        texts = {each.text_digest for pair in ours[name].pairs for each in (pair, pair.exchanged)}
        common = sum(pair.text in texts for pair in pairs)
        if common < _LEAST_COMMON * len(pairs):
            raise InvalidRequestError(
                f"{folder} has judgments on other pairs called {name}: only {common} of its "
                f"{len(pairs)} judged pairs are in this data. Give another --out, or delete that "
                "folder"
            )


def _run(judge: str | None, datasets: Iterable[str]) -> str:
    return f"{judge or 'an unnamed judge'} on {', '.join(datasets)}"
