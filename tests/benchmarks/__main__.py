"""`make bench`: measures the figures; prints and writes each of them when it is done."""

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.benchmarks import client_speed, engine_speed, http_speed, prefix_order, start_speed
from tests.benchmarks.code import ROOT
from tests.benchmarks.measured import MEASURED, FigureFile, about, in_a_line
from tests.benchmarks.measurement import Figure, Result, Sampling, Unmeasured
from tests.benchmarks.real_judge import UnavailableJudgeError
from tests.drills.running import Bar

# Repeats of the figures that take minutes.
_FEW = 3
# Figures that share their processes -> what measures those of them that are asked for.
ROWS: dict[tuple[str, ...], Callable[[Sampling, Sequence[str]], Sequence[Figure]]] = {
    engine_speed.DEMO: engine_speed.with_the_demo_judge,
    engine_speed.REAL: engine_speed.with_a_real_judge,
    start_speed.NAMES: start_speed.starts,
    ("prefix-order",): prefix_order.prefix_order,
    ("http-scripted",): lambda sampling, _: [http_speed.batches(sampling)],
    ("single-scripted",): lambda sampling, _: [http_speed.singles(sampling)],
    ("memory",): lambda sampling, _: [http_speed.memory(sampling)],
    ("client-batch",): lambda sampling, _: [client_speed.batches(sampling)],
    ("client-stream",): lambda sampling, _: [client_speed.stream(sampling)],
}
_SLOW = ("prefix-order", *start_speed.NAMES)
NAMES = tuple(name for names in ROWS for name in names)


def results(
    wanted: Sequence[str], sampling: Sampling, on_stage: Callable[[str], None]
) -> Iterator[Result]:
    """Yields each figure when it is measured; one that fails does not stop the others."""
    for names, measured in ROWS.items():
        asked = [name for name in names if name in wanted]
        if not asked:
            continue
        on_stage(", ".join(asked))
        few = min(sampling.repeats, _FEW) if names[0] in _SLOW else sampling.repeats
        try:
            yield from measured(dataclasses.replace(sampling, repeats=few), asked)
        except UnavailableJudgeError as exc:
            yield from (Unmeasured(name, "skipped", str(exc)) for name in asked)
        except Exception as exc:  # noqa: BLE001 - the other figures are still measured
            reason = f"{type(exc).__name__}: {exc}"
            yield from (Unmeasured(name, "failed", reason) for name in asked)


def main() -> None:
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-bench-"))
    failed = False
    with Bar() as bar:
        repeats = 1 if given.quick else given.repeats
        sampling = Sampling(folder=folder, repeats=repeats, small=given.quick, on_sample=bar.step)
        # The file is part of the working tree, so the commit is read before the file changes.
        run, file = about(repeats=repeats, quick=given.quick), FigureFile(given.json)
        for result in results(given.only, sampling, bar.stage):
            failed |= isinstance(result, Unmeasured) and result.why == "failed"
            file.take(result, run)
            bar.console.print(in_a_line(result), highlight=False, soft_wrap=True)
    print(f"written to {given.json}")
    if failed:
        print(f"the logs of the processes are in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("--repeats", type=int, default=5, help="samples per figure (default 5)")
    parser.add_argument("--quick", action="store_true", help="one small repeat, as a smoke test")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="file that takes the figures; others in it stay (default "
        f"{MEASURED.relative_to(ROOT)}, with --quick bench.json)",
    )
    given = parser.parse_args()
    given.json = given.json or (Path("bench.json") if given.quick else MEASURED)
    if given.quick and given.json.resolve() == MEASURED:
        parser.error("--quick does not measure: give another file with --json")
    return given


if __name__ == "__main__":
    main()
