"""Labeled rows for the commands: read, checked, and reported before anything is judged."""

from collections.abc import Sequence
from pathlib import Path

from app.cli.console import say
from app.files.checking import CheckedRows, Contradictions, LabelReport, checked
from app.files.labeled import FilePair, read_pairs
from app.files.reading import InputFormat


def checked_pairs(
    files: Sequence[Path], form: InputFormat, contradictions: Contradictions
) -> CheckedRows[FilePair]:
    """The rows of files that count, after the report is printed."""
    rows = checked(read_pairs(files, form), contradictions)
    print_label_report(rows.report)
    return rows


def print_label_report(report: LabelReport) -> None:
    """Prints what became of labeled rows."""
    say((report.sentence, "bold"))
    for detail in report.details:
        kind, colon, rest = detail.partition(":")
        say((f"{kind}{colon}", "yellow"), rest)
