"""Measures what abstaining is worth for rewards; writes the table of docs/guides/rewards.md.

make serve                                # in one terminal
python docs/tools/make_gating_table.py    # in another: some minutes; also docs/measured/gating.json
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import httpx

from tests import markdown
from tests.demo_judge.gating import Row, measure

DOCS = Path(__file__).parents[1]
NUMBERS, PAGE = DOCS / "measured" / "gating.json", DOCS / "guides" / "rewards.md"
HEADINGS = (
    "answers",
    "points",
    "opponents",
    "accepted",
    "wrong of accepted",
    "unordered",
    "wrong of ordered",
    "no reward",
)


def table(rows: Sequence[Row]) -> str:
    """The figures by which a trainer chooses, in Markdown."""
    lines = [
        (
            "always" if row.alpha is None else f"alpha {row.alpha:.2f}",
            row.kind,
            str(row.opponents),
            f"{row.accepted:.1%}",
            _share(row.wrong_of_accepted),
            f"{row.unordered:.1%}",
            _share(row.wrong_of_ordered),
            f"{row.without_reward:.1%}",
        )
        for row in rows
    ]
    return markdown.table(HEADINGS, lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main() -> None:
    """Measures through a running service, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--written", action="store_true", help="measure nothing; write the table")
    asked = parser.parse_args()
    if not asked.written:
        with httpx.Client(base_url=asked.url, timeout=600) as client:
            found = [asdict(row) for row in measure(client)]
        NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    rows = [Row(**row) for row in json.loads(NUMBERS.read_text(encoding="utf-8"))]
    markdown.put_between_markers("gating", table(rows), PAGE)


if __name__ == "__main__":
    main()
