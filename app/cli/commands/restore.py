"""`scope-judge restore`: fills a store from the file of a backup."""

from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from app.cli.console import CommandError, say
from app.cli.stopping import resumable
from app.cli.store_files import StoreUrl, amount, check_url

# The help of a command needs its options only.
if TYPE_CHECKING:
    from app.service.backup.lines import Described


def restore(
    file: Annotated[Path, typer.Argument(help="File of `scope-judge backup`.")],
    store: StoreUrl = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove the present contents of the store.")
    ] = False,
) -> None:
    """Fill an empty store from a backup of any kind of store.

    An interrupted restore leaves the store unchanged.
    """
    import asyncio

    from app.service.backup.lines import check

    check_url(store)
    if not file.is_file():
        reason = "is not a regular file" if file.exists() else "does not exist"
        raise CommandError(f"{file} {reason}")
    try:
        with file.open("rb") as backup:
            described = check(backup, str(file))
            backup.seek(0)
            with resumable("nothing or everything was restored: run the command again"):
                filled = asyncio.run(_fill(store, backup, described, replace=replace))
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}") from None
    if not filled:
        raise CommandError(
            "the store has sets or audits, and nothing was changed. --replace removes them: back "
            "the store up first"
        )
    say(
        f"The store is as of {described.at} (scope-judge {described.release}); "
        f"{amount(described.counts)}."
    )


async def _fill(url: str, backup: IO[bytes], described: "Described", *, replace: bool) -> bool:
    from app.cli.progress import progress_bar
    from app.service.backup.lines import Counts, parts_in
    from app.service.backup.walk import fill
    from app.wiring.stores import opened

    counted = Counts()
    async with opened(url, must_exist=False) as store:
        with progress_bar() as progress:
            task = progress.add_task("restoring", total=described.counts.entries)
            return await fill(
                store,
                parts_in(backup),
                replace=replace,
                on_part=lambda part: progress.advance(task, counted.add(part)),
            )
