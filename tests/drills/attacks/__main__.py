"""`make drills`: runs every known attack on a real service, and writes the table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.drills.attacks.catalogue import ATTACKS
from tests.drills.attacks.outcome import Outcome, carried_out
from tests.drills.attacks.report import keep
from tests.drills.running import ROOT, add_only, one_by_one


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs attacks, one after the other."""
    options = _arguments(arguments)
    code = options.app.resolve()
    outcomes = one_by_one(options.only, lambda name: carried_out(ATTACKS[name], code=code), _tell)
    if options.write:
        keep(outcomes, options.write)
    sys.exit(1 if any(outcome.faults for outcome in outcomes.values()) else 0)


def _tell(outcome: Outcome, console: Console) -> None:
    console.print(f"[bold]{outcome.name}[/]: {escape(outcome.figure)}", highlight=False)
    if outcome.seen is not None:
        console.print(f"  [dim]{escape(str(outcome.seen))}[/]", highlight=False)
    for fault in outcome.faults:
        console.print(f"  [red]{escape(fault)}[/]", highlight=False)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make drills", description=__doc__)
    add_only(parser, ATTACKS)
    parser.add_argument(
        "--app", type=Path, default=ROOT, help="folder of the release to attack (default: this one)"
    )
    parser.add_argument(
        "--write",
        choices=("before", "after"),
        help="keep the figures in docs/measured/drills.json; those of `after` are on the page, too",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
