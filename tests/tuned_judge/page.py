"""The tables of docs/measured/tuned-judge.md, from docs/measured/tuned-judge.json."""

import json
from pathlib import Path
from typing import Any

from tests.markdown import put_between_markers, table

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "measured"
NUMBERS, PAGE = FOLDER / "tuned-judge.json", FOLDER / "tuned-judge.md"
_SETS = {"seen": "trained families", "unseen": "unseen families"}


def tables(content: dict[str, Any]) -> str:
    """Both judges on both sets, and each family that is not trained on, in Markdown."""
    return "\n\n".join((_judges(content["judges"]), _families(content["judges"])))


def _judges(judges: dict[str, Any]) -> str:
    headings = (
        "judge",
        "pairs",
        "n",
        "accuracy (95%)",
        "AUROC",
        "label mass",
        "right if the better is first",
        "second",
        "verdicts at 0.10",
        "wrong among them",
        "verdicts at 0.20",
        "wrong among them",
    )
    rows = []
    for name in _SETS:
        for judge, sets in judges.items():
            found = sets[name]
            low, high = found["interval"]
            verdicts = [
                text
                for splits in found["splits"]
                for wrong in [f"{splits['error']:.1%}" if splits["coverage"] else "-"]
                for text in (f"{splits['coverage']:.1%}", wrong)
            ]
            rows.append(
                (
                    judge,
                    _SETS[name],
                    str(found["pairs"]),
                    f"{found['accuracy']:.3f} ({low:.3f}-{high:.3f})",
                    f"{found['auroc']:.3f}",
                    f"{found['label_mass']:.3f}",
                    f"{found['right_if_better_is_first']:.3f}",
                    f"{found['right_if_better_is_second']:.3f}",
                    *verdicts,
                )
            )
    return table(headings, rows)


def _families(judges: dict[str, Any]) -> str:
    rows = [
        (f"`{family}`", f"{before:.2f}", f"{judges['tuned']['unseen']['families'][family]:.2f}")
        for family, before in judges["original"]["unseen"]["families"].items()
    ]
    return table(("unseen family", "accuracy before", "after"), rows)


def write_page() -> None:
    """Writes the tables into the page."""
    content = json.loads(NUMBERS.read_text(encoding="utf-8"))
    put_between_markers("tables", f"\n{tables(content)}\n\n", PAGE)
