"""`make bench`: measures the figures; prints and writes each of them when it is done."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks.code import ROOT
from tests.benchmarks.measured import MEASURED, FigureFile
from tests.benchmarks.measurement import Failed, Result, Sampling
from tests.benchmarks.report import about, in_a_line, print_table
from tests.benchmarks.suite import NAMES, Suite, samples_of
from tests.drills.running import Bar


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    repeats = 1 if given.quick else given.repeats
    names = [name for name in NAMES if not given.only or name in given.only]
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-bench-"))
    with Bar(sum(samples_of(name, repeats) for name in names)) as bar:
        sampling = Sampling(folder=folder, repeats=repeats, small=given.quick, on_sample=bar.step)
        suite = Suite(sampling, against=given.against, on_stage=bar.stage)
        # The file is part of the working tree, so the commit is read before the file changes.
        run, file = about(repeats=repeats, quick=given.quick), FigureFile(given.json)
        results: list[Result] = []
        for result in suite.measure(names):
            results.append(result)
            file.take(result, run)
            bar.console.print(in_a_line(result), highlight=False, soft_wrap=True)
        bar.stage("done")
    print_table(results, Console(width=None if sys.stdout.isatty() else 120))
    print(f"written to {given.json}")
    if any(isinstance(result, Failed) for result in results):
        print(f"the logs of the processes are in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--repeats", type=int, default=5, help="samples per figure (default 5)")
    parser.add_argument("--quick", action="store_true", help="one small repeat, as a smoke test")
    parser.add_argument(
        "--against",
        type=lambda text: Path(text).resolve(strict=True),
        metavar="FOLDER",
        help="checkout of another release, whose start is compared with that of this one",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="file that takes the figures; others in it stay (default "
        f"{MEASURED.relative_to(ROOT)}, with --quick bench.json)",
    )
    given = parser.parse_args(arguments)
    given.json = given.json or (Path("bench.json") if given.quick else MEASURED)
    if given.quick and given.json.resolve() == MEASURED:
        parser.error("--quick does not measure: give another file with --json")
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    return given


if __name__ == "__main__":
    main()
