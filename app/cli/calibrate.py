"""`scope-judge calibrate`: adds files of labelled pairs to a set of a running service.

All pairs are judged first, and their scores are kept in a file beside the input. Then all of them
become one version of the set. So a run that is stopped leaves the set as it was, and goes on later.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from app.cli.assessment import assessment_of_answer, print_assessment
from app.cli.comparisons import ColumnMap, Inputs, Item, ShapeName, given_shape, read_items
from app.cli.console import console, failure, print_thresholds, progress_bar
from app.cli.journal_path import journal_path
from app.cli.score_upload import Upload, set_path, upload
from app.cli.service_client import (
    DEFAULT_URL,
    PATIENCE_S,
    Patience,
    Posted,
    ServiceClient,
    Url,
    connected,
)
from app.core.errors import ScopeJudgeError
from app.files.journal import Journal

_SHOWN_FAILURES = 3


class _Failure(NamedTuple):
    """A row that was not added, and the reason."""

    place: str
    detail: str


def calibrate(
    files: Inputs,
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    label_noise: Annotated[
        float | None,
        typer.Option(help="Probability that a label is wrong; it applies to the whole set."),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            help="How pac counts pairs of one question, for the whole set: one, adjusted or ignore."
        ),
    ] = None,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in one request.")] = 100,
    overwrite: Annotated[
        bool, typer.Option(help="Drop an unfinished run with another judge.")
    ] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labelled pairs to a calibration set of a running service.

    A label is A, B or tie (or model_a, model_b, both_bad). All pairs of a run become one version of
    the set. If the command is stopped, the set stays as it was; run the command again, and it goes
    on with the rest.
    """
    # Checked here, because the service sees it after everything has been judged.
    if label_noise is not None and not 0.0 <= label_noise < 0.5:
        raise failure(f"--label-noise must be at least 0 and below 0.5, got {label_noise}")
    if clusters not in (None, "one", "adjusted", "ignore"):
        raise failure(f"--clusters must be one, adjusted or ignore, got {clusters!r}")
    try:
        items = read_items(files, given_shape(shape, columns), labelled=True)
        with (
            connected(url, patience_s=patience) as service,
            Journal(
                journal_path(files, f"calibrate-{name}.partial"),
                {"judge": service.fingerprint, "calibration": name},
                replace=overwrite,
            ) as journal,
        ):
            with _stoppable(f"{name} is unchanged"):
                errors = _judge(items, service, name, journal, batch_size)
            failures = list(_failures(items, errors))
            scores = [journal.results[i.key] for i in items if i.key in journal.results]
            if not scores:
                _print_failures(failures)
                raise failure(f"no pair was judged, and {name} is unchanged")
            with _stoppable(f"{name} may have been changed already"):
                done = upload(
                    service,
                    name,
                    scores,
                    judge=service.judge_name,
                    fingerprint=service.fingerprint,
                    label_noise=label_noise,
                    clusters=clusters,
                )
            journal.remove()
            found = service.get(set_path(name))
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    _print_outcome(name, done, found, failed=len(failures))
    if failures:
        _print_failures(failures)
        raise typer.Exit(1)


@contextmanager
def _stoppable(state: str) -> Iterator[None]:
    """Ends the command at Ctrl-C, and prints the state of the set."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            f"[yellow]stopped:[/] {escape(state)}. The same command goes on.", highlight=False
        )
        raise typer.Exit(130) from None


def _judge(
    items: Sequence[Item], service: ServiceClient, name: str, journal: Journal, batch_size: int
) -> dict[str, str]:
    """Judges the pairs that are not in the journal, and appends their scores to it.

    Returns:
        Key of each pair that could not be judged -> the reason.
    """
    every = {i.key: i.fields for i in items if not isinstance(i.fields, ScopeJudgeError)}
    keys = [key for key in every if key not in journal.results]
    size = min(batch_size, service.max_batch)
    errors: dict[str, str] = {}

    def body(some: list[str]) -> dict[str, Any]:
        return {"calibration": name, "examples": [every[key] for key in some]}

    with progress_bar() as progress:
        task = progress.add_task("calibrating", total=len(every), completed=len(every) - len(keys))
        for start in range(0, len(keys), size):
            for part in service.post_judged("/calibrate/scores", keys[start : start + size], body):
                errors |= _keep(part, service, journal)
                progress.advance(task, len(part.items))
    return errors


def _keep(part: Posted, service: ServiceClient, journal: Journal) -> dict[str, str]:
    """Appends the scores of a request to the journal; returns failed keys with their reasons."""
    some, answer, reason = part
    if reason:
        return dict.fromkeys(some, reason)
    if answer["fingerprint"] != service.fingerprint:
        raise failure("the service has another judge than at the beginning of this run")
    failed = {some[entry["index"]]: entry["error"]["detail"] for entry in answer["errors"]}
    judged = (key for key in some if key not in failed)
    journal.append(zip(judged, answer["scores"], strict=True))
    return failed


def _failures(items: Sequence[Item], errors: Mapping[str, str]) -> Iterator[_Failure]:
    """The rows that were not judged, in order."""
    for item in items:
        if isinstance(item.fields, ScopeJudgeError):
            yield _Failure(item.row.place, item.fields.detail)
        elif item.key in errors:
            yield _Failure(item.row.place, errors[item.key])


def _print_outcome(name: str, done: Upload, found: dict[str, Any], *, failed: int) -> None:
    """Prints the set after the run.

    Args:
        name: Name of the set.
        done: The outcome of the run.
        found: Answer of GET /calibrations/{name}.
        failed: Number of pairs that were not judged.
    """
    answer, counts = done.answer, Counter({**done.counts, "failed": failed})
    console.print(f"calibration {escape(name)}, version {answer['version']}", highlight=False)
    if found.get("unlabelled"):
        print_thresholds(name, found["version"], found["n"], found["thresholds"])
        console.print(
            f"{found['unlabelled']} pairs have no label yet: GET {set_path(name, '/next')} lists "
            "those to label next",
            highlight=False,
        )
    else:
        print_assessment(assessment_of_answer(found), stderr=True)
    shown = ("added", "updated", "ties", "removed", "failed")
    console.print(", ".join(f"{count} {counts[count]}" for count in shown))


def _print_failures(failures: Sequence[_Failure]) -> None:
    for place, detail in failures[:_SHOWN_FAILURES]:
        console.print(
            f"[yellow]not added:[/] {escape(place)}: {escape(detail)}",
            highlight=False,
            soft_wrap=True,
        )
    if len(failures) > _SHOWN_FAILURES:
        console.print(f"and {len(failures) - _SHOWN_FAILURES} more", highlight=False)
