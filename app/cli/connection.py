"""The connection of the commands to a running service, by the client that trainers use, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.stopping import resumable

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.exchange import Pause

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(envvar="SCOPE_URL", help="Address of the service.")]
PATIENCE_S = 600.0
Patience = Annotated[
    float,
    typer.Option(min=0, help="Seconds for which a failing request is retried."),
]


@contextmanager
def connected(
    url: str, *, patience_s: float = PATIENCE_S, otherwise: str = ""
) -> Iterator["ScopeClient"]:
    """A client of a service that has answered, so that output is opened only if it can be used.

    The key is read from SCOPE_API_KEY only: every user of a machine can see the options of a
    process. `otherwise` is the alternative to name if there is no service.
    """
    from scope_judge import ScopeClient, ScopeError

    try:
        with ScopeClient(url, patience_s=0) as once:
            once.info()
    except ValueError as exc:
        raise CommandError(f"--url: {exc}") from None
    except ScopeError as exc:
        raise CommandError(f"{exc}{otherwise}") from None
    # A file is read later, when nobody looks at the age of its thresholds.
    with ScopeClient(
        url, patience_s=patience_s, on_wait=_print_wait, confirmed_only=True
    ) as client:
        yield client


@contextmanager
def changing() -> Iterator[None]:
    """Says what to do if a change is sent once, and it is unknown whether it was made."""
    from scope_judge import AnswerError, UnavailableError

    with resumable(
        "check whether the change was made before you repeat it",
        only_if=lambda exc: isinstance(exc, AnswerError | UnavailableError),
    ):
        yield


def _print_wait(pause: "Pause") -> None:
    say(("waiting for the service:", "dim"), f" {pause.reason}")
