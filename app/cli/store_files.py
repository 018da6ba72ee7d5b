"""The option and messages that `scope-judge backup` and `scope-judge restore` share."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError

if TYPE_CHECKING:
    from app.audits.backup import Backup

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="SCOPE_STORE_URL",
        help="Store URL of the service: sqlite:///path or redis://host:port/db.",
        show_default=False,
    ),
]


def check_url(url: str) -> None:
    """Refuses a missing URL."""
    if not url:
        raise CommandError(
            "no store: set SCOPE_STORE_URL, or give --store. If the service runs without "
            "SCOPE_STORE_URL, it prints the path of its file when it starts: use "
            "--store sqlite:///FILE"
        )


def shown_url(url: str) -> str:
    """The URL of a store without a password, which may be among the options at its end, too."""
    return re.sub(r"^([^/]*://)[^/]*@", r"\1", url.partition("?")[0])


def amount(backup: "Backup") -> str:
    """Describes the content of a backup for a person."""
    return f"calibration sets: {backup.sets:,}, rows of audits: {backup.audits:,}"
