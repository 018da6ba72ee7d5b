"""`make fuzz`: sends at least 20,000 requests to a running service, and checks every answer.

schemathesis makes half of them from the OpenAPI document; the others are mutations, raw bytes and
broken HTTP. Exits with 1 on any server error, hang, error that is not problem+json, or undocumented
answer. Prints the seed.
"""

import argparse
import itertools
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.drills.fuzzing import documented, sending
from tests.drills.fuzzing.attempts import attempts
from tests.drills.fuzzing.scene import Scene, redis_scene, sqlite_scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.running import Bar, print_table

_ROUND = 1000
_EXAMPLES = 40


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    print(f"seed {given.seed}", file=sys.stderr)
    began = time.monotonic()
    tally = Tally()
    with Bar(given.requests) as bar, ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        scenes = [
            stack.enter_context(sqlite_scene(folders[0])),
            stack.enter_context(redis_scene(folders[1])),
        ]
        _fuzz(
            scenes,
            tally,
            seed=given.seed,
            requests=given.requests,
            on_request=bar.step,
            on_round=bar.stage,
        )
    seconds = time.monotonic() - began
    _print(tally)
    print(f"{tally.requests} requests in {seconds:.0f} s, seed {given.seed}")
    sys.exit(1 if tally.failures else 0)


def _fuzz(
    scenes: Sequence[Scene],
    tally: Tally,
    *,
    seed: int,
    requests: int,
    on_request: Callable[[], None],
    on_round: Callable[[str], None],
) -> None:
    streams = [attempts(seed + i, key=each.key) for i, each in enumerate(scenes)]
    for number in itertools.count():
        if tally.requests >= requests:
            break
        turn = number % len(scenes)
        on_round(scenes[turn].name)
        before = tally.requests
        documented.run(
            scenes[turn], tally, examples=_EXAMPLES, seed=seed + number, on_request=on_request
        )
        # As many requests that the document rules out.
        some = itertools.islice(streams[turn], max(_ROUND, tally.requests - before))
        sending.send_all(scenes[turn], some, tally, on_request)
    for each in scenes:
        on_round(f"{each.name}, at the end")
        sending.hold_open(each, tally, times=10)
        for fault in each.calibration_faults():
            tally.failed("still calibrates and judges at the end", f"{each.name}: {fault}")


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
