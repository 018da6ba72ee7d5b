"""`scope-judge calibrate`: adds files of labelled pairs to a set of a running service."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer
from rich.markup import escape

from app.cli.assessment import assessment_of_answer, print_assessment
from app.cli.comparisons import ColumnMap, Inputs, Item, ShapeName, given_shape, read_items
from app.cli.console import console, failure, progress_bar
from app.cli.service_client import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.core.errors import ScopeJudgeError

_COUNTS = ("added", "updated", "ties", "removed", "failed")
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
    shape: ShapeName = None,
    columns: ColumnMap = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in one request.")] = 100,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labelled pairs to a calibration set of a running service.

    A label is A, B or tie (or model_a, model_b, both_bad). If the command is stopped, run it again:
    no example is counted twice.
    """
    try:
        items = read_items(files, given_shape(shape, columns), labelled=True)
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    sound = [item for item in items if not isinstance(item.fields, ScopeJudgeError)]
    failures = [
        _Failure(item.row.place, item.fields.detail)
        for item in items
        if isinstance(item.fields, ScopeJudgeError)
    ]
    counts = Counter(failed=len(failures))
    body: dict[str, Any] = {"calibration": name}
    if label_noise is not None:
        body["label_noise"] = label_noise
    answer: dict[str, Any] = {}
    with connected(url, patience_s=patience) as service, progress_bar() as progress:
        task = progress.add_task("calibrating", total=len(sound))
        for some in _batches(sound, min(batch_size, service.max_batch)):
            examples = [item.fields for item in some]
            answer = service.post("/calibrate", {**body, "examples": examples})
            counts.update({count: answer[count] for count in _COUNTS})
            failures += [
                _Failure(some[entry["index"]].row.place, entry["error"]["detail"])
                for entry in answer["errors"]
            ]
            progress.advance(task, len(some))
        detail = service.get(f"/calibrations/{quote(name, safe='')}")
    console.print(f"calibration {escape(name)}, version {answer['version']}", highlight=False)
    print_assessment(assessment_of_answer(detail), stderr=True)
    console.print(", ".join(f"{count} {counts[count]}" for count in _COUNTS))
    if failures:
        _print_failures(failures)
        raise typer.Exit(1)


def _batches(items: Sequence[Item], size: int) -> Iterable[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _print_failures(failures: Sequence[_Failure]) -> None:
    for place, detail in failures[:_SHOWN_FAILURES]:
        console.print(
            f"[yellow]not added:[/] {escape(place)}: {escape(detail)}",
            highlight=False,
            soft_wrap=True,
        )
    if len(failures) > _SHOWN_FAILURES:
        console.print(f"and {len(failures) - _SHOWN_FAILURES} more", highlight=False)
