"""`make replicas`: a rolling restart under load, and two replicas against one.

python -m tests.drills.replicas --write
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.drills.replicas.fleet import fleet_of
from tests.drills.replicas.rolling import Rolling, rolling_restart
from tests.drills.replicas.throughput import Bench, Rates, computing, in_turns, waiting
from tests.drills.running import ROOT, Bar, print_table, write_json
from tests.markdown import put_between_markers, table

DOCUMENT = ROOT / "docs" / "guides" / "deploy" / "replicas.md"
_BATCH_CLIENTS = 4
# Seconds for each prompt; a comparison has two. That is 250 comparisons a second, about the speed
# of a small judge on a GPU, and little enough for two cores that also run everything else.
_JUDGE_S = 0.002
_HEADINGS = ("replicas", "requests come", "one", "two", "ratio", "lowest - highest")


def main() -> None:
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-replicas-"))
    benches: dict[str, Callable[[Path], AbstractContextManager[Bench]]] = {
        "compute (scripted)": lambda place: computing(place, given.batches),
        # Waiting replicas are so slow that as many batches would take minutes.
        "wait for judges elsewhere (openai)": lambda place: waiting(
            place, max(8, given.batches // 50), _JUDGE_S
        ),
    }
    with Bar() as bar:
        bar.stage("rolling restart")
        with fleet_of(folder) as fleet:
            rolling = asyncio.run(
                rolling_restart(fleet, seconds=given.seconds, batch_clients=_BATCH_CLIENTS)
            )
        rates = {}
        for number, (kind, opened) in enumerate(benches.items()):
            bar.stage(f"throughput of replicas that {kind}")
            place = folder / f"bench-{number}"
            place.mkdir()
            with opened(place) as bench:
                rates[kind] = in_turns(bench, given.repeats)
    _tell(rolling, rates, write=given.write)
    sys.exit(0 if rolling.failed == 0 and not rolling.wrong else 1)


def _tell(rolling: Rolling, rates: dict[str, Rates], *, write: bool) -> None:
    print_table("rolling", ("route", "requests", "answers", "slowest"), rolling.rows)
    rows = [_row(kind, found) for kind, found in rates.items()]
    print_table("rates", _HEADINGS, rows)
    print(rolling, *rolling.wrong, sep="\n")
    if write:
        throughput = {kind: found._asdict() for kind, found in rates.items()}
        content = {"rolling": vars(rolling) | {"failed": rolling.failed}, "throughput": throughput}
        file = write_json("replicas", content)
        put_between_markers("rolling", f"{rolling}.", DOCUMENT)
        put_between_markers("rates", table(_HEADINGS, rows), DOCUMENT)
        print(f"written to {file} and {DOCUMENT}")


def _row(kind: str, found: Rates) -> tuple[str, ...]:
    # The ratio of each repeat, not of the medians: a slow moment slows both.
    ratios = [two / one for one, two in zip(found.one, found.two, strict=True)]
    return (
        kind,
        "through haproxy",
        f"{statistics.median(found.one):,.0f}/s",
        f"{statistics.median(found.two):,.0f}/s",
        f"{statistics.median(ratios):.2f}",
        f"{min(ratios):.2f} - {max(ratios):.2f}",
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make replicas", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of the restarts (default 20)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="samples of each (default 5)")
    parser.add_argument(
        "--batches", type=int, default=600, help="batches a sample for each replica (default 600)"
    )
    parser.add_argument("--write", action="store_true", help="into docs/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
