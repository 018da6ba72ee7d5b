"""`scope-judge restore`: fills an empty store from the file of a backup."""

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.running import options

# The help of a command needs its options only.
if TYPE_CHECKING:
    from app.audits.backup import Backup


def restore(
    file: Annotated[Path, typer.Argument(help="File of `scope-judge backup`.")],
    store: options.StoreUrl = "",
) -> None:
    """Fill an empty store from a backup of any kind of store.

    Stop the services first. After an interruption, empty the store and run the command again.
    """
    import asyncio

    options.check_url(store)
    if not file.is_file():
        reason = "is not a regular file" if file.exists() else "does not exist"
        raise CommandError(f"{file} {reason}")
    try:
        with file.open("rb") as lines:
            backup = asyncio.run(_restore(store, lines, str(file)))
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}") from None
    say(f"{shown_url(store)} is as of {backup.at} (scope-judge {backup.release}); {backup.amount}.")


async def _restore(url: str, lines: IO[bytes], name: str) -> "Backup":
    from app.audits.backup import check_backup, is_empty, restore_backup
    from app.wiring.stores import opened

    backup = check_backup(lines, name)
    lines.seek(0)
    async with opened(url, must_exist=False) as store:
        if not await is_empty(store):
            raise CommandError(
                "the store has sets or audits, and nothing was changed: restore into a new SQLite "
                "file or an empty Redis database"
            )
        await restore_backup(store, lines)
    return backup


def shown_url(url: str) -> str:
    """The URL of a store without a password, which may be among the options at its end, too."""
    return re.sub(r"^([^/]*://)[^/]*@", r"\1", url.partition("?")[0])
