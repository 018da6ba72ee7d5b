"""How every command ends early: at an error, at Ctrl-C, and at Ctrl-C while a judge loads."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import typer
from typer.exceptions import TyperException

from app.cli.console import CommandError, print_error, say
from app.core.errors import ScopeJudgeError
from app.core.printable import printable_line
from app.observability import logs


@contextmanager
def ending() -> Iterator[None]:
    """Turns errors and Ctrl-C of any command into its last lines and exit status 1 or 130."""
    try:
        yield
    except _reasons() as exc:
        # The client's own message begins with the code of the error.
        print_error(exc.detail if isinstance(exc, CommandError | ScopeJudgeError) else str(exc))
        for note in _notes(exc):
            say(note)
        raise typer.Exit(1) from None
    except TyperException as exc:
        # A shell's pattern may name files as options and arguments.
        exc.message = printable_line(exc.message)
        raise
    except KeyboardInterrupt as exc:
        say(": ".join(["stopped", *_notes(exc)]))
        raise typer.Exit(128 + signal.SIGINT) from None


@contextmanager
def resumable(
    kept: str, *, only_if: Callable[[BaseException], bool] = lambda exc: True
) -> Iterator[None]:
    """Says what is kept, and what to do, if an error or Ctrl-C ends the command in the block."""
    try:
        yield
    except (*_reasons(), KeyboardInterrupt) as exc:  # type: ignore[misc] # mypy 2.4
        if only_if(exc):
            exc.add_note(kept)
        raise


def refuses(exc: BaseException) -> bool:
    """Whether the service refused a request that it will refuse again."""
    status = getattr(exc, "status", None)
    return status is not None and 400 <= status < 500 and status != 429


def _reasons() -> tuple[type[Exception], ...]:
    """The exceptions that end a command with a message; the client's, if it was imported."""
    client = sys.modules.get("scope_judge.errors")
    return (CommandError, ScopeJudgeError, *(() if client is None else (client.ScopeError,)))


def _notes(exc: BaseException) -> list[str]:
    return getattr(exc, "__notes__", [])


def end_now(sig: int, _frame: FrameType | None = None) -> NoReturn:
    """Ends the process within its signal handler, with the exit status that a shell expects.

    A model is loaded by libraries that catch exceptions and wait for their own processes, so an
    exception would arrive late or never. Nothing is lost: a store and a file of judgments are
    durable at any time, and the kernel kills the engine's processes with this one
    (`app.judges.engines.descendants`).
    """
    # A second signal must not wait for this handler.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    logs.finish()
    # The interrupted code may be writing to the same stream.
    with suppress(OSError, RuntimeError, ValueError):
        sys.stderr.flush()
    with suppress(OSError):
        os.write(2, b"stopped before the judge was ready\n")
    os._exit(128 + sig)


@contextmanager
def ending_at_ctrl_c() -> Iterator[None]:
    """Ends the process at once if SIGINT arrives within the block."""
    before = signal.signal(signal.SIGINT, end_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
