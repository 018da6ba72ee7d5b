"""Judges the items of a batch; each has an outcome of its own, in the order of the items."""

from collections.abc import Sequence
from typing import NamedTuple

from app.core.comparison import Judgment
from app.core.errors import RequestError, ScopeJudgeError
from app.service.judging.judge import Judge, JudgeRequest

Outcome = Judgment | ScopeJudgeError


class BatchItem(NamedTuple):
    """One comparison of a batch.

    Args:
        id: The caller's name for it; None if it has none.
        asked: What it asks for, or why it cannot be judged.
    """

    id: str | int | None
    asked: JudgeRequest | RequestError


def requests_of(items: Sequence[BatchItem]) -> list[JudgeRequest]:
    """The items that can be judged."""
    return [item.asked for item in items if isinstance(item.asked, JudgeRequest)]


async def judge_items(judge: Judge, items: Sequence[BatchItem]) -> list[Outcome]:
    """Judges all items in one engine call; an item that cannot be judged keeps its error.

    Raises:
        UnavailableError: Nothing was judged.
        JudgmentFailedError: The engine's answer does not fit the items; nothing was judged.
    """
    judged = iter(await judge.judge_batch(requests_of(items)))
    return [next(judged) if isinstance(item.asked, JudgeRequest) else item.asked for item in items]
