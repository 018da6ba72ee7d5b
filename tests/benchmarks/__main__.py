"""`make bench`: measures the figures; prints and writes each of them when it is done."""

import argparse
import dataclasses
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks import client_speed, engine_speed, http_speed, start_speed
from tests.benchmarks.figures import MEASURED, Figure, FigureFile, Sampling, about

# Repeats of the figures that take minutes.
_FEW = 3
# Figures that share their processes -> what measures those of them that are asked for.
ROWS: dict[tuple[str, ...], Callable[[Sampling, Sequence[str]], Sequence[Figure]]] = {
    engine_speed.DEMO: engine_speed.with_the_demo_judge,
    engine_speed.REAL: engine_speed.with_a_real_judge,
    start_speed.NAMES: start_speed.starts,
    ("http-scripted",): lambda sampling, _: [http_speed.batches(sampling)],
    ("single-scripted",): lambda sampling, _: [http_speed.singles(sampling)],
    ("memory",): lambda sampling, _: [http_speed.memory(sampling)],
    ("client-batch",): lambda sampling, _: [client_speed.batches(sampling)],
    ("client-stream",): lambda sampling, _: [client_speed.stream(sampling)],
}
NAMES = tuple(name for names in ROWS for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("--repeats", type=int, default=5, help="samples per figure (default 5)")
    parser.add_argument("--quick", action="store_true", help="one small repeat, into bench.json")
    given = parser.parse_args()
    repeats = 1 if given.quick else given.repeats
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-bench-"))
    sampling = Sampling(folder=folder, repeats=repeats, small=given.quick)
    # The file is part of the working tree, so the commit is read before the file changes.
    run, file = about(repeats=repeats), FigureFile(Path("bench.json") if given.quick else MEASURED)
    failed = False
    for names, measured in ROWS.items():
        asked = [name for name in names if name in given.only]
        few = min(repeats, _FEW) if names == start_speed.NAMES else repeats
        try:
            figures = measured(dataclasses.replace(sampling, repeats=few), asked) if asked else ()
        except Exception as exc:  # noqa: BLE001 - the other figures are still measured
            print(f"{', '.join(asked)}: failed: {type(exc).__name__}: {exc}", flush=True)
            failed = True
            continue
        for figure in figures:
            found = figure.in_json()
            file.take(found, run)
            low, high = found["spread"]
            theirs = f"theirs {statistics.median(figure.theirs):,.2f}, " if figure.theirs else ""
            print(
                f"{figure.name}: {statistics.median(figure.ours):,.2f} {figure.unit}, {theirs}"
                f"{found['median']:,.2f} ({low:,.2f} to {high:,.2f}), aim {figure.target}, "
                f"met: {found['met']}",
                flush=True,
            )
    if failed:
        sys.exit(f"the logs of the processes are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
