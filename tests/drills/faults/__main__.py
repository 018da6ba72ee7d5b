"""`make faults`: causes every fault under traffic, then prints and stores the clients' view."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.drills.faults.catalogue import FAULTS
from tests.drills.faults.experiment import FaultReport
from tests.drills.faults.report import faults_json, markdown, print_outcomes
from tests.drills.running import DRILLS, add_only, one_by_one, write_json
from tests.markdown import put_between_markers


def main(arguments: Sequence[str] | None = None) -> None:
    options = _arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-faults-"))
    outcomes = one_by_one(options.only, lambda name: _caused(name, folder, options.seconds), _tell)
    print_outcomes([*outcomes.values()])
    if len(outcomes) == len(FAULTS):
        # An incomplete run is not written: the document keeps the last complete one.
        file = write_json("faults", faults_json([*outcomes.values()]))
        put_between_markers("faults", markdown([*outcomes.values()]), DRILLS)
        print(f"written to {file} and {DRILLS}")
    sys.exit(1 if any(outcome.wrong for outcome in outcomes.values()) else 0)


def _caused(name: str, folder: Path, seconds: float) -> FaultReport:
    fault = FAULTS[name]
    outcome = FaultReport(name, fault.how, seconds)
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


def _tell(outcome: FaultReport, console: Console) -> None:
    for text in outcome.wrong[:1]:
        console.print(f"[red]{outcome.name}: {escape(text)}[/]")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    add_only(parser, FAULTS)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration of each fault (default 10)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
