"""The calibration set of the bundled judge: the labelled pairs that are shipped with it."""

import json
from collections.abc import Sequence
from pathlib import Path

from app.core.calibration import Calibration
from app.core.comparison import Comparison, LabelledComparison
from app.core.fingerprint import batch_digest
from app.service.off_loop import off_loop
from app.service.services import Services


def labelled_comparisons(path: Path) -> list[LabelledComparison]:
    """Reads shipped pairs: JSONL with question, response_a, response_b and label."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        LabelledComparison(
            Comparison.of(row["question"], row["response_a"], row["response_b"]), row["label"]
        )
        for row in rows
    ]


async def is_outdated(
    known: Calibration, examples: Sequence[LabelledComparison], services: Services
) -> bool:
    """Whether an earlier release made the bundled judge's set, and nobody has changed it since.

    This judge is refused such a set, and nothing is lost if it is deleted and made again: all its
    labels are in `examples`.

    Args:
        known: The set.
        examples: The shipped pairs.
        services: Of this judge.
    """
    judge = services.judge
    if known.fingerprint == judge.fingerprint or known.judge != judge.name:
        return False
    newest = await services.calibrator.versions(known.name, before=None, limit=1)
    if not newest or known.label_noise:
        return False
    (record,) = newest
    # Made by the service itself, where there was no set before, of the shipped pairs and no others.
    return (
        (record.version, record.write_id) == (known.version, known.write_id)
        and (record.action, record.by) == ("calibrate", "service")
        and record.thresholds_before is None
        and record.added == record.n == known.n
        and record.batch_digest == await off_loop(batch_digest, examples)
    )
