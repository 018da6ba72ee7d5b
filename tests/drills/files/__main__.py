"""`python -m tests.drills.files`: interrupts `judge` of 20,000 rows; `make files` runs it."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.drills.files.interruptions import INTERRUPTIONS, drill
from tests.drills.running import add_only, print_table


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    add_only(parser, INTERRUPTIONS)
    options = parser.parse_args()
    headings = ("interruption", "runs", "equal", "files left", "judged again", "seconds")
    rows = []
    changed = set[int]()
    with tempfile.TemporaryDirectory() as folder:
        async with drill(Path(folder), options.rows) as scene:
            rows.append(["none", "1", "", "", "", f"{scene.undisturbed():.1f}"])
            for name in options.only:
                outcome = scene.disturbed(INTERRUPTIONS[name])
                if not outcome.equal or outcome.left:
                    changed.add(len(rows))
                rows.append(
                    [
                        INTERRUPTIONS[name].title,
                        str(outcome.runs),
                        "yes" if outcome.equal else "NO",
                        ", ".join(outcome.left) or "none",
                        "not known" if outcome.again is None else str(outcome.again),
                        f"{outcome.seconds:.1f}",
                    ]
                )
    print_table("scope-judge judge FILE", headings, rows, red=changed)
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    asyncio.run(main())
