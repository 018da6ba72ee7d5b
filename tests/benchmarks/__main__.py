"""`make bench`: measures the figures; prints and writes each of them when it is done."""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmarks.measurement import Failed, Result
from tests.benchmarks.report import in_a_line, print_table, to_json
from tests.benchmarks.suite import NAMES, Suite, samples_of


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    repeats = 1 if given.quick else given.repeats
    names = [name for name in NAMES if not given.only or name in given.only]
    # SIGTERM ends this process in order, which ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-bench-"))
    with bar:
        task = bar.add_task("starting", total=sum(samples_of(name, repeats) for name in names))

        def on_stage(text: str) -> None:
            bar.update(task, description=text)

        suite = Suite(
            folder,
            repeats=repeats,
            quick=given.quick,
            against=given.against,
            on_stage=on_stage,
            on_sample=lambda: bar.advance(task),
        )
        results: list[Result] = []
        for result in suite.measure(names):
            results.append(result)
            _write(results, given.json, repeats=repeats, quick=given.quick)
            console.print(in_a_line(result), highlight=False, soft_wrap=True)
        bar.update(task, description="done", completed=bar.tasks[0].total)
    print_table(results, Console(width=None if sys.stdout.isatty() else 120))
    print(f"written to {given.json}")
    if any(isinstance(result, Failed) for result in results):
        sys.exit(1)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--repeats", type=int, default=5, help="samples per figure (default 5)")
    parser.add_argument("--quick", action="store_true", help="one small repeat, as a smoke test")
    parser.add_argument(
        "--against",
        type=lambda text: Path(text).resolve(strict=True),
        metavar="FOLDER",
        help="checkout of another release; needed by cpu-single and cpu-batch",
    )
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    given = parser.parse_args(arguments)
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    return given


def _write(results: Sequence[Result], file: Path, *, repeats: int, quick: bool) -> None:
    content = to_json(results, repeats=repeats, quick=quick)
    file.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
