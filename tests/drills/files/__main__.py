"""`python -m tests.drills.files`: interrupts `judge` of 20,000 rows; `make files` runs it."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.files.interruptions import INTERRUPTIONS, drill


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--only", choices=INTERRUPTIONS)
    given = parser.parse_args()
    table = Table("interruption", "runs", "equal", "files left", "judged again", "seconds")
    with tempfile.TemporaryDirectory() as made:
        async with drill(Path(made), given.rows) as scene:
            table.add_row("none", "1", "", "", "", f"{scene.undisturbed():.1f}")
            for name, interruption in INTERRUPTIONS.items():
                if given.only in (None, name):
                    found = scene.disturbed(interruption)
                    table.add_row(
                        interruption.title,
                        str(found.runs),
                        "yes" if found.equal else "NO",
                        ", ".join(found.left) or "none",
                        "not known" if found.again is None else str(found.again),
                        f"{found.seconds:.1f}",
                    )
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
