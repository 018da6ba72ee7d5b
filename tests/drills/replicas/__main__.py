"""`make replicas`: a rolling restart under load, delays of versions, two replicas against one.

python -m tests.drills.replicas --write
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console

from tests.drills.replicas.fleet import fleet_of
from tests.drills.replicas.propagation import Delays, delays_of
from tests.drills.replicas.report import (
    content,
    cpu_rows,
    delay_rows,
    rate_rows,
    ratios_of,
    rolling_rows,
    rolling_text,
)
from tests.drills.replicas.rolling import Rolling, rolling_restart
from tests.drills.replicas.throughput import Bench, Sample, computing, in_turns, waiting
from tests.drills.running import ROOT, Bar, print_table, write_json
from tests.markdown import put_between_markers, table

DOCUMENT = ROOT / "docs" / "guides" / "deploy" / "replicas.md"
_BATCH_CLIENTS = 4
# Seconds for each prompt; a comparison has two. That is 250 comparisons a second, about the speed
# of a small judge on a GPU, and little enough for two cores that also run everything else.
_JUDGE_S = 0.002


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-replicas-"))
    with Bar() as bar:
        rolling, delays = _together(folder / "together", given, bar.stage)
        throughput = _throughput(folder, given, bar.stage)
    _tell(rolling, delays, throughput, given)
    sys.exit(0 if rolling.failed == 0 and not rolling.wrong else 1)


def _together(
    folder: Path, given: argparse.Namespace, on_stage: Callable[[str], None]
) -> tuple[Rolling, Delays]:
    folder.mkdir()
    on_stage("starting two replicas")
    with fleet_of(folder) as fleet:
        on_stage(f"{given.versions} versions in each of three ways")
        delays = asyncio.run(delays_of(fleet, given.versions))
        on_stage("rolling restart")
        rolling = asyncio.run(
            rolling_restart(fleet, seconds=given.seconds, batch_clients=_BATCH_CLIENTS)
        )
    return rolling, delays


def _throughput(
    folder: Path, given: argparse.Namespace, on_stage: Callable[[str], None]
) -> dict[str, list[Sample]]:
    found = {}
    benches: dict[str, Callable[[Path], AbstractContextManager[Bench]]] = {
        "computing": lambda place: computing(place, given.batches),
        # Waiting replicas are so slow that as many batches would take minutes.
        "waiting": lambda place: waiting(place, max(8, given.batches // 50), _JUDGE_S),
    }
    for kind, opened in benches.items():
        on_stage(f"throughput, {kind}: starting")
        (folder / kind).mkdir()
        with opened(folder / kind) as bench:
            on_stage(f"throughput, {kind}")
            found[kind] = in_turns(bench, given.repeats)
    return found


def _tell(
    rolling: Rolling,
    delays: Delays,
    throughput: Mapping[str, Sequence[Sample]],
    given: argparse.Namespace,
) -> None:
    console = Console(soft_wrap=True, highlight=False)
    ratios = ratios_of(throughput)
    tables = {
        "rolling": rolling_rows(rolling),
        "delays": delay_rows(delays),
        "rates": rate_rows(ratios),
        "cpu": cpu_rows(ratios),
    }
    for name, (headings, *rows) in tables.items():
        print_table(name, headings, rows)
    console.print(rolling_text(rolling), markup=False)
    for text in rolling.wrong:
        console.print(text, style="red", markup=False)
    if given.write:
        file = write_json("replicas", content(rolling, delays, throughput))
        put_between_markers("rolling", f"{rolling_text(rolling)}.", DOCUMENT)
        through_haproxy = {key: ratio for key, ratio in ratios.items() if "haproxy" in key}
        headings, *rows = rate_rows(through_haproxy)
        put_between_markers("rates", table(headings, rows), DOCUMENT)
        console.print(f"written to {file} and {DOCUMENT}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make replicas", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of the restarts (default 20)"
    )
    parser.add_argument("--versions", type=int, default=50, help="versions each way (default 50)")
    parser.add_argument("--repeats", type=int, default=5, help="samples of each (default 5)")
    parser.add_argument(
        "--batches", type=int, default=600, help="batches a sample for each replica (default 600)"
    )
    parser.add_argument("--write", action="store_true", help="into docs/")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
