"""How far the labelling of a set is, in a sentence for the people who label."""

from app.service.auditing.recovery import Recovery


def decision_of(needed: int | None, *, alpha: float) -> str:
    """Says how many labels of a pool are missing before the next test of its threshold.

    Args:
        needed: Number of labels; None if the threshold is known.
        alpha: The alpha of the threshold.
    """
    if needed is None:
        return f"The threshold at alpha {alpha:g} is decided."
    labels = "1 more label" if needed == 1 else f"{needed} more labels"
    return f"{labels} until the next test of the threshold at alpha {alpha:g}."


def progress_of(waiting: int, recovery: Recovery | None) -> str:
    """Says how many pairs wait, and how many labels are missing until an alarm can be lifted.

    Args:
        waiting: Number of pairs that wait for a label.
        recovery: The audits that a new calibration needs after an alarm; None without an alarm.
    """
    pairs = "1 pair waits" if waiting == 1 else f"{waiting or 'No'} pairs wait"
    if recovery is None or recovery.audits is None:
        return f"{pairs}."
    missing = recovery.audits - recovery.labelled
    if missing <= 0:
        return f"{pairs}; there are enough labels to lift the alarm."
    labels = "1 more label" if missing == 1 else f"{missing} more labels"
    return f"{pairs}; {labels} until the alarm can be lifted."
