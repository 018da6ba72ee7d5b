"""Labeled pairs that are kept out of a set, and what the set makes of them."""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from app.cli.console import console, print_table, say
from app.cli.progress import progress_bar
from app.core.assessment import share_interval
from app.files.labeled import FilePair

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.records import CalibrationDetail


def held_out(pairs: Sequence[FilePair], share: float) -> tuple[list[FilePair], list[FilePair]]:
    """Splits pairs by their questions into those of the set and those that are held out.

    A question is on one side with all of its pairs, and on the same side in every run.
    """
    kept: tuple[list[FilePair], list[FilePair]] = ([], [])
    for pair in pairs:
        text = json.dumps(pair.fields["question"], sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        kept[int.from_bytes(digest[:4]) < share * 2**32].append(pair)
    return kept


def print_held_out(
    client: "ScopeClient", detail: "CalibrationDetail", pairs: Sequence[FilePair]
) -> None:
    """Prints the verdicts and the errors of each criterion of a set on held-out pairs.

    Its thresholds are applied to their scores. Nothing is judged, so that these pairs are no
    traffic of the set, and are not drawn for audits.
    """
    # Imported late: numpy takes a while.
    from app.core.verdict_errors import accepted_and_wrong

    least_mass, judged = client.info().min_label_mass, 0
    gaps: list[tuple[float, float | None]] = []
    sides: list[bool] = []
    with progress_bar() as bar:
        shown = bar.add_task("scoring held-out pairs", total=len(pairs))
        scores = client.score_pairs(pair.fields for pair in pairs)
        for pair, score in zip(pairs, scores, strict=True):
            bar.advance(shown)
            judged += score.error is None
            is_on_task = score.label_mass is None or score.label_mass >= least_mass
            if score.gap_fwd is not None and is_on_task:
                gaps.append((score.gap_fwd, score.gap_rev))
                sides.append(pair.label == "A")
    rows = [row for row in detail.thresholds if row.threshold is not None]
    if not rows:
        say("No alpha of the table gives verdicts, so there is nothing to check.")
        return
    thresholds = [row.threshold for row in rows if row.threshold is not None]
    counts = accepted_and_wrong(gaps, sides, thresholds, temperature=detail.temperature or 1.0)
    table = Table()
    for heading in ("guarantee", "alpha", "accepted", "wrong", "wrong of accepted", "95% interval"):
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row, (accepted, wrong) in zip(rows, counts, strict=True):
        share, interval = "", ""
        if accepted:
            low, high = share_interval(wrong / accepted, accepted)
            share, interval = f"{wrong / accepted:.1%}", f"{low:.1%} to {high:.1%}"
        of = f"{accepted} of {judged}"
        table.add_row(row.guarantee, f"{row.alpha:g}", of, str(wrong), share, interval)
    print_table(
        table, title=f"{len(pairs)} held-out pairs under the new thresholds", output=console
    )
