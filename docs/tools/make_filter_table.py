"""Prints the table of docs/integrations/dpo.md: wrong pairs that `scope-judge filter` keeps.

Usage: python docs/tools/make_filter_table.py     (runs the bundled judge; two minutes)
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from app.demo.pairs import demo_sets
from docs.tools.running_service import SCOPE_JUDGE, running_service

SEED, FLIPPED = 15, 0.2
ALPHAS = (0.05, 0.10, 0.20)


def written_pairs(file: Path) -> int:
    """Writes 2,000 preference pairs; a fifth is labeled the wrong way round.

    Returns:
        The number of wrong pairs.
    """
    rng = random.Random(SEED)
    wrong = 0
    with file.open("w") as lines:
        for pair in demo_sets().fresh:
            both = pair.response_a, pair.response_b
            right, other = both if pair.label == "A" else reversed(both)
            is_wrong = rng.random() < FLIPPED
            wrong += is_wrong
            chosen, rejected = (other, right) if is_wrong else (right, other)
            row = {"prompt": pair.question, "chosen": chosen, "rejected": rejected, "right": right}
            lines.write(f"{json.dumps(row)}\n")
    return wrong


def filtered(file: Path, out: Path, url: str, *options: str) -> list[dict[str, Any]]:
    """The kept pairs."""
    subprocess.run(
        [SCOPE_JUDGE, "filter", str(file), "--out", str(out), *options],
        env={**os.environ, "SCOPE_URL": url},
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return [json.loads(line) for line in out.read_text().splitlines()]


def main() -> None:
    """Judges the pairs at every alpha under both guarantees and prints a row for each."""
    with tempfile.TemporaryDirectory() as made, running_service(Path(made)) as url:
        file = Path(made) / "pairs.jsonl"
        wrong = written_pairs(file)
        print(f"{len(demo_sets().fresh)} pairs, {wrong} of them the wrong way round\n")
        print("| guarantee | alpha | kept | of them wrong | dropped |")
        print("|---|---|---|---|---|")
        for guarantee in ("marginal", "pac"):
            for alpha in ALPHAS:
                out = Path(made) / f"{guarantee}-{alpha}.jsonl"
                options = ("--alpha", str(alpha), "--guarantee", guarantee)
                print_row(guarantee, alpha, filtered(file, out, url, *options))
                sys.stdout.flush()


def print_row(guarantee: str, alpha: float, rows: list[dict[str, Any]]) -> None:
    """Prints one row of the table."""
    wrong = sum(row["chosen"] != row["right"] for row in rows)
    dropped = len(demo_sets().fresh) - len(rows)
    print(f"| {guarantee} | {alpha:.2f} | {len(rows)} | {wrong} | {dropped} |")


if __name__ == "__main__":
    main()
