"""The sentence that people who label read."""

import pytest

from app.service.auditing.recovery import Recovery
from app.service.labelling.progress import progress_of
from tests.unit.service.auditing.logs import MARGINAL


def recovery(audits: int | None, labelled: int) -> Recovery:
    return Recovery(criterion=MARGINAL, since=0.0, audits=audits, drawn=500, labelled=labelled)


@pytest.mark.parametrize(
    ("waiting", "needed", "words"),
    [
        (0, None, "No pairs wait."),
        (1, None, "1 pair waits."),
        (12, None, "12 pairs wait."),
        (12, recovery(None, 3), "12 pairs wait."),
        (12, recovery(200, 169), "12 pairs wait; 31 more labels until the alarm can be lifted."),
        (1, recovery(200, 199), "1 pair waits; 1 more label until the alarm can be lifted."),
        (0, recovery(200, 200), "No pairs wait; there are enough labels to lift the alarm."),
    ],
)
def test_the_sentence_has_the_pairs_and_the_missing_labels(
    waiting: int, needed: Recovery | None, words: str
) -> None:
    assert progress_of(waiting, needed) == words
