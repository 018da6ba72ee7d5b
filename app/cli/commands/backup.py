"""`scope-judge backup`: writes the contents of a store to one file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.running import options
from app.files.replacing import replacing


def backup(
    file: Annotated[Path, typer.Argument(help="File to write, JSON Lines.")],
    store: options.StoreUrl = "",
    overwrite: Annotated[bool, typer.Option(help="Replace FILE.")] = False,
) -> None:
    """Write the complete store to a file: sets, trails, audits and their secret.

    Services can keep running. FILE appears when it is complete, and only you can read it.
    """
    import asyncio

    options.check_url(store)
    if file.exists() and not file.is_file():
        raise CommandError(f"{file} is not a regular file")
    if not file.resolve().parent.is_dir():
        raise CommandError(f"{file} cannot be written: there is no folder {file.resolve().parent}")
    if file.exists() and not overwrite:
        raise CommandError(
            f"{file} already exists: name another file, or replace it with --overwrite"
        )
    try:
        asyncio.run(_write(store, file))
    except OSError as exc:
        raise CommandError(f"{file} cannot be written: {exc.strerror}") from None


async def _write(url: str, file: Path) -> None:
    from app.audits.backup import is_empty, write_backup
    from app.release import RELEASE
    from app.wiring.stores import opened

    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    async with opened(url, must_exist=True) as store:
        if await is_empty(store):
            raise CommandError(
                "the store is empty, and nothing was written. Check that SCOPE_STORE_URL is that "
                "of the service"
            )
        with replacing(file, mode=0o600) as out:
            backup = await write_backup(store, out, release=RELEASE, at=at)
    say(f"{file} is complete; {backup.amount}.")
