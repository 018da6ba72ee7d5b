"""The table of docs/guides/monitoring.md that says how many audits to label after an alarm."""

from pathlib import Path

from app.core.comparison import Criterion, Guarantee
from app.core.recovery import labels_for_verdicts

PAGE = Path(__file__).resolve().parents[3] / "docs/guides/monitoring.md"


def test_the_table_has_the_numbers_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| alpha | audits, `marginal` |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == 5
    for alpha, marginal, pac in rows:
        needed = {"marginal": int(marginal.replace(",", "")), "pac": int(pac.replace(",", ""))}
        for guarantee, number in needed.items():
            assert _labels(float(alpha), "pac" if guarantee == "pac" else "marginal") == number


def _labels(alpha: float, guarantee: Guarantee) -> int | None:
    delta = 0.1 if guarantee == "pac" else None
    asked = Criterion(alpha=alpha, guarantee=guarantee, delta=delta, calibration="default")
    return labels_for_verdicts(asked, 0.0)
