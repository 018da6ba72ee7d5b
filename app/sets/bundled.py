"""The calibration set of the bundled judge, made of the labeled pairs that ship with the judge."""

import json
from collections.abc import Sequence
from pathlib import Path

from app.core.calibration import Calibration
from app.core.comparison import Comparison, LabeledComparison
from app.core.errors import CalibrationNotFoundError
from app.core.fingerprint import JudgeIdentity, batch_digest
from app.off_loop import off_loop
from app.sets.calibrator import Calibrator


def labeled_comparisons(path: Path) -> list[LabeledComparison]:
    """Reads shipped pairs: JSONL with the fields question, response_a, response_b and label."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        LabeledComparison(
            comparison=Comparison.of(row["question"], row["response_a"], row["response_b"]),
            label=row["label"],
        )
        for row in rows
    ]


async def was_deleted(calibrator: Calibrator, name: str) -> bool:
    """Whether the last change of a set is a deletion that the service did not make itself."""
    try:
        newest = await calibrator.versions(name, before=None, limit=1)
    except CalibrationNotFoundError:
        return False
    return bool(newest) and newest[0].action == "delete" and newest[0].by != "service"


async def is_outdated(
    known: Calibration,
    examples: Sequence[LabeledComparison],
    *,
    identity: JudgeIdentity,
    calibrator: Calibrator,
) -> bool:
    """Whether an earlier release of the bundled judge made the set, and nobody changed it since.

    The current judge cannot use such a set. Deleting it and calibrating again loses nothing,
    because `examples` has all of its labels.
    """
    if known.fingerprint == identity.fingerprint or known.judge != identity.name:
        return False
    newest = await calibrator.versions(known.name, before=None, limit=1)
    if not newest:
        return False
    (change,) = newest
    # The service itself made the set from exactly the shipped pairs, and there was no set before.
    return (
        (change.version, change.write_id) == (known.version, known.write_id)
        and (change.action, change.by) == ("calibrate", "service")
        and change.thresholds_before is None
        and change.added == change.n == known.n
        and change.batch_digest == await off_loop(batch_digest, examples)
    )
