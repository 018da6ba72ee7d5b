"""`make fuzz`: sends at least 20,000 requests to a running service, and checks every answer.

schemathesis makes half of them from the OpenAPI document; the others are mutations, raw bytes and
broken HTTP. Exits with 1 on any server error, hang, error that is not problem+json, or undocumented
answer. Prints the seed, and writes docs/measured/fuzzing.json.
"""

import argparse
import itertools
import json
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.drills.fuzzing import documented, sending
from tests.drills.fuzzing.attempts import attempts
from tests.drills.fuzzing.ledger import Ledger
from tests.drills.fuzzing.scene import Scene, scene
from tests.redis_server import RedisServer

MEASURED = Path(__file__).resolve().parents[3] / "docs" / "measured" / "fuzzing.json"
_ROUND = 1000
_EXAMPLES = 40


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    # SIGTERM ends this process in order, which ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=True)
    console.print(f"seed {given.seed}")
    began = time.monotonic()
    ledger = Ledger()
    with _progress(console) as progress, ExitStack() as stack:
        task = progress.add_task("starting", total=given.requests)
        scenes = [stack.enter_context(_sqlite()), stack.enter_context(_redis())]
        _fuzz(
            scenes,
            ledger,
            seed=given.seed,
            requests=given.requests,
            on_request=lambda: progress.advance(task),
            on_round=lambda name: progress.update(task, description=name),
        )
    seconds = time.monotonic() - began
    _print(ledger, Console(width=None if sys.stdout.isatty() else 200))
    print(f"{ledger.requests} requests in {seconds:.0f} s, seed {given.seed}")
    if given.requests >= 20_000:
        found = {"seed": given.seed, "seconds": round(seconds), **ledger.as_json()}
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"written to {MEASURED}")
    sys.exit(1 if ledger.failures else 0)


def _fuzz(
    scenes: Sequence[Scene],
    ledger: Ledger,
    *,
    seed: int,
    requests: int,
    on_request: Callable[[], None],
    on_round: Callable[[str], None],
) -> None:
    streams = [attempts(seed + i, key=each.key) for i, each in enumerate(scenes)]
    for number in itertools.count():
        if ledger.requests >= requests:
            break
        turn = number % len(scenes)
        on_round(scenes[turn].name)
        before = ledger.requests
        documented.run(
            scenes[turn], ledger, examples=_EXAMPLES, seed=seed + number, on_request=on_request
        )
        # As many requests that the document rules out.
        some = itertools.islice(streams[turn], max(_ROUND, ledger.requests - before))
        sending.send_all(scenes[turn], some, ledger, on_request)
    for each in scenes:
        on_round(f"{each.name}, at the end")
        sending.hold_open(each, ledger, times=10)
        for fault in each.calibration_faults():
            ledger.failed("still calibrates and judges at the end", f"{each.name}: {fault}")


@contextmanager
def _sqlite() -> Iterator[Scene]:
    with (
        tempfile.TemporaryDirectory() as folder,
        scene(Path(folder), f"sqlite:///{folder}/sets.db") as found,
    ):
        yield found


@contextmanager
def _redis() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            with scene(Path(folder), server.url, with_keys=True) as found:
                yield found
        finally:
            server.stop()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _print(ledger: Ledger, console: Console) -> None:
    table = Table("what", "number", title="fuzzing")
    for title, counts in (
        ("status", ledger.statuses),
        ("to", ledger.routes),
        ("passed", ledger.checks),
        ("replaced by our own checks", ledger.excused),
        ("[red]FAILED[/]", ledger.failures),
    ):
        for name, count in sorted(counts.items()):
            table.add_row(f"{title} {escape(name)}", f"{count:,}")
    for slow in sorted(ledger.slowest, reverse=True):
        table.add_row(f"slow {escape(slow.what)}", f"{slow.seconds:.2f} s")
    console.print(table)
    for check, kept in ledger.examples.items():
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
