"""`make drills`: runs every known attack on a real service, and writes the table."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.drills.attacks.catalogue import ATTACKS
from tests.drills.attacks.outcome import Outcome, carried_out
from tests.drills.attacks.report import keep
from tests.drills.attacks.scene import ROOT


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs attacks, one after the other."""
    given = _arguments(arguments)
    # SIGTERM ends this process in order, which ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=True)
    outcomes: dict[str, Outcome] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        names = given.only or list(ATTACKS)
        task = bar.add_task("starting", total=len(names))
        for name in names:
            bar.update(task, description=name)
            try:
                outcomes[name] = carried_out(ATTACKS[name], code=given.app.resolve())
            except KeyboardInterrupt:
                break
            _tell(outcomes[name], console)
            bar.advance(task)
    if given.write:
        keep(outcomes, given.write)
    sys.exit(1 if any(outcome.faults for outcome in outcomes.values()) else 0)


def _tell(outcome: Outcome, console: Console) -> None:
    console.print(f"[bold]{outcome.name}[/]: {escape(outcome.figure)}", highlight=False)
    if outcome.seen is not None:
        console.print(f"  [dim]{escape(str(outcome.seen))}[/]", highlight=False)
    for fault in outcome.faults:
        console.print(f"  [red]{escape(fault)}[/]", highlight=False)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make drills", description=__doc__)
    names = ", ".join(ATTACKS)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, metavar="NAME", help=names)
    parser.add_argument(
        "--app", type=Path, default=ROOT, help="folder of the release to attack (default: this one)"
    )
    parser.add_argument(
        "--write",
        choices=("before", "after"),
        help="put the figures into this column of docs/guides/reliability.md",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
