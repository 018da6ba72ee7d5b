"""`make fuzz`: sends at least 20,000 requests to a running service, and checks every answer.

schemathesis makes half of them from the OpenAPI document; the others are sound requests with
damaged bytes. Exits with 1 on any server error, hang, error that is not problem+json, undocumented
answer, or route that no request reached. Prints the seed.
"""

import argparse
import itertools
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.drills.fuzzing import damage, documented
from tests.drills.fuzzing.scene import redis_scene, sqlite_scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.running import Bar, print_table


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    print(f"seed {given.seed}", file=sys.stderr)
    began = time.monotonic()
    tally = Tally()
    with Bar(given.requests) as bar, ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        scenes = (
            stack.enter_context(sqlite_scene(folders[0])),
            stack.enter_context(redis_scene(folders[1])),
        )
        number = given.seed
        while tally.requests < given.requests:
            for scene in scenes:
                number += 1
                bar.stage(scene.name)
                before = tally.requests
                documented.run(scene, tally, examples=40, seed=number, on_request=bar.step)
                damaged = damage.requests(number, scene.key)
                some = itertools.islice(damaged, tally.requests - before)
                damage.send(scene, some, tally, bar.step)
        for scene in scenes:
            for route in sorted(set(scene.document.routes) - set(tally.routes)):
                tally.failed("every documented route is reached", f"{scene.name}: {route}")
            for fault in scene.calibration_faults():
                tally.failed("still calibrates and judges at the end", f"{scene.name}: {fault}")
    seconds = time.monotonic() - began
    _print(tally)
    print(f"{tally.requests} requests in {seconds:.0f} s, seed {given.seed}")
    sys.exit(1 if tally.failures else 0)


def _print(tally: Tally) -> None:
    counts = {
        "status": tally.statuses,
        "to": tally.routes,
        "passed": tally.checks,
        "replaced by our own checks": tally.excused,
        "FAILED": tally.failures,
    }
    rows = [
        [f"{title} {name}", f"{count:,}"]
        for title, counted in counts.items()
        for name, count in sorted(counted.items())
    ]
    failed = {number for number, (what, _) in enumerate(rows) if what.startswith("FAILED")}
    rows += [
        [f"slow {slow.what}", f"{slow.seconds:.2f} s"]
        for slow in sorted(tally.slowest, reverse=True)
    ]
    print_table("fuzzing", ("what", "number"), rows, red=failed)
    console = Console(soft_wrap=True)
    for check, kept in tally.examples.items():
        for example in kept:
            console.print(f"[red]{escape(check)}[/]: {escape(example)}", highlight=False)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=20_000, help="smallest number (default 20000)"
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**32), help="seed of an earlier run"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
