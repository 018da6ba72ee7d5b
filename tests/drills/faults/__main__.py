"""`make faults`: causes every fault under traffic, then prints and stores the clients' view."""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.drills.faults.catalogue import FAULTS
from tests.drills.faults.experiment import Outcome
from tests.drills.faults.report import (
    DOCUMENT,
    faults_json,
    markdown,
    print_table,
    write_json,
)
from tests.markdown import put_between_markers


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    names = given.only or list(FAULTS)
    # SIGTERM ends this process in order, which ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-faults-"))
    outcomes: list[Outcome] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("starting", total=len(names))
        for name in names:
            bar.update(task, description=name)
            try:
                outcome = _caused(name, folder, given.seconds)
            except KeyboardInterrupt:
                break
            outcomes.append(outcome)
            if outcome.wrong:
                console.print(f"[red]{name}: {outcome.wrong[0]}[/]")
            bar.advance(task)
    print_table(outcomes, Console(width=None if sys.stdout.isatty() else 200))
    if len(outcomes) == len(FAULTS):
        # An incomplete run is not written: the document keeps the last complete one.
        print(f"written to {write_json('faults', faults_json(outcomes))} and {DOCUMENT}")
        put_between_markers("faults", markdown(outcomes), DOCUMENT)
    sys.exit(1 if any(outcome.wrong for outcome in outcomes) else 0)


def _caused(name: str, folder: Path, seconds: float) -> Outcome:
    fault = FAULTS[name]
    outcome = Outcome(name, fault.how, seconds)
    obstacle = fault.obstacle()
    if obstacle:
        outcome.skipped = obstacle
        return outcome
    place = folder / name
    place.mkdir()
    try:
        return asyncio.run(fault.run(place, seconds))
    except (AssertionError, RuntimeError, OSError) as exc:
        # The remaining faults can still be caused.
        outcome.wrong.append(f"{type(exc).__name__}: {exc} (logs in {place})")
        return outcome


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="NAME", help=", ".join(FAULTS))
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration of each fault (default 10)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
