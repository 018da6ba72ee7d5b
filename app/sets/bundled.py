"""The labeled pairs that ship with the bundled judge."""

import json
from pathlib import Path

from app.core.comparison import Comparison, LabeledComparison


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
