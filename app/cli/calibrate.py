"""`scope-judge calibrate`: adds a file of labelled pairs to a set of a running service."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from app.cli.console import console, print_thresholds, progress_bar
from app.cli.jsonl import batches, read_jsonl
from app.cli.service_client import DEFAULT_URL, Url, connected

_EXAMPLE_FIELDS = ("question", "response_a", "response_b", "label", "id")
# Failed examples that are shown for each request.
_SHOWN_FAILURES = 3


def calibrate(
    file: Annotated[
        Path, typer.Argument(help="JSONL with question, response_a, response_b, label; - is stdin.")
    ],
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    label_noise: Annotated[
        float | None,
        typer.Option(help="Probability that a label is wrong; it applies to the whole set."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in one request.")] = 100,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labelled pairs to a calibration set of a running service.

    If the command is stopped, run it again: no example is counted twice.
    """
    lines = read_jsonl(file)
    counts = dict.fromkeys(("added", "updated", "ties", "removed", "failed"), 0)
    body: dict[str, Any] = {"calibration": name}
    if label_noise is not None:
        body["label_noise"] = label_noise
    answer: dict[str, Any] = {}
    with connected(url) as service, progress_bar() as progress:
        task = progress.add_task("calibrating", total=len(lines))
        done = 0
        # An empty file still sends one request, because that request may change the label noise.
        for some in batches(lines, min(batch_size, service.max_batch)) if lines else [[]]:
            examples = [{k: line[k] for k in _EXAMPLE_FIELDS if k in line} for line in some]
            answer = service.post("/calibrate", {**body, "examples": examples})
            for count in counts:
                counts[count] += answer[count]
            for entry in answer["errors"][:_SHOWN_FAILURES]:
                place = f"example {done + entry['index'] + 1}"
                detail = escape(entry["error"]["detail"])
                progress.console.print(f"[yellow]not added:[/] {place}: {detail}")
            done += len(some)
            progress.update(task, completed=done)
    print_thresholds(name, answer["version"], answer["n"], answer["thresholds"])
    console.print(", ".join(f"{count} {value}" for count, value in counts.items()))
    if counts["failed"]:
        raise typer.Exit(1)
