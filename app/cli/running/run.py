"""One run over rows: asks about those that no earlier run has an answer for, and keeps the answers.

A result is kept as soon as it is there. So an interrupted run resumes where it stopped, also after
kill -9.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.progress import progress_bar
from app.cli.running.rows import Item
from app.cli.stopping import resumable
from app.core.errors import ScopeJudgeError
from app.files.journal import Journal

if TYPE_CHECKING:
    from scope_judge.records import Problem

Results = dict[str, dict[str, Any]]
# Asks about the comparisons of some keys; yields the key and the result of each as it comes.
Ask = Callable[[Mapping[str, Any]], Iterable[tuple[str, dict[str, Any]]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The results of all rows.

    Args:
        results: Key of a row -> its result, or {"error": ...}.
        asked: Number of comparisons that this run asked for.
    """

    results: Results
    asked: int


@contextmanager
def finished(
    items: Sequence[Item],
    ask: Ask,
    *,
    journal: Path,
    settings: Mapping[str, Any],
    overwrite: bool,
    kept: str,
    title: str = "judging",
    keep_errors: bool = True,
) -> Iterator[Finished]:
    """Asks about the rows that no earlier run has an answer for.

    Args:
        items: The rows.
        ask: Asks about their comparisons.
        journal: File of the results so far.
        settings: Everything that the results depend on beside their comparisons.
        overwrite: Drop an unfinished run with other settings.
        kept: Sentence for a run that is stopped.
        title: Name of the work, for the progress bar.
        keep_errors: Whether a row that failed is not asked about again by the next run.

    Yields:
        The results of all rows. The journal is removed if the block does not raise.
    """
    results = unaskable(items)
    with Journal(journal, settings, replace=overwrite) as kept_results:
        results |= kept_results.results
        known = len(results)
        with resumable(kept):
            for key, result in answered(asked_of(items), ask, results, title=title):
                if keep_errors or is_judged(result):
                    kept_results.append(key, result)
                results[key] = result
        yield Finished(results=results, asked=len(results) - known)
        kept_results.remove()


def answered(
    comparisons: Mapping[str, Any], ask: Ask, known: Collection[str], *, title: str = "judging"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the results of the comparisons that are not known, with progress."""
    missing = {key: fields for key, fields in comparisons.items() if key not in known}
    total = len(comparisons)
    with progress_bar() as progress:
        task = progress.add_task(title, total=total, completed=total - len(missing))
        for key, result in ask(missing) if missing else ():
            progress.advance(task)
            yield key, result


def unaskable(items: Iterable[Item]) -> Results:
    """The results of the rows without a comparison: their errors."""
    from app.api.problems import problem_of

    return {
        item.key: error_of(problem_of(item.fields))
        for item in items
        if isinstance(item.fields, ScopeJudgeError)
    }


def error_of(problem: "Problem") -> dict[str, Any]:
    """The result of a row that has an error."""
    return {"error": {name: value for name, value in asdict(problem).items() if value is not None}}


def asked_of(items: Iterable[Item]) -> dict[str, Any]:
    """The fields of each comparison by key, or the reason why a row has none."""
    return {item.key: item.fields for item in items}


def is_judged(result: Mapping[str, Any]) -> bool:
    """Whether a result is not an error."""
    return "error" not in result
