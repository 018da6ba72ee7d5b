"""Judges the items of a batch; each item gets its own outcome, in the order of the items."""

from collections.abc import Sequence
from typing import NamedTuple

from app.core.comparison import Judgment
from app.core.errors import RequestError, ScopeJudgeError
from app.service.judging.judge import Judge, JudgeRequest

Outcome = Judgment | ScopeJudgeError


class BatchItem(NamedTuple):
    """One comparison of a batch.

    Args:
        id: The caller's id of the item; None if it has none.
        asked: The request to the judge; or the error that prevents it.
    """

    id: str | int | None
    asked: JudgeRequest | RequestError


def requests_of(items: Sequence[BatchItem]) -> list[JudgeRequest]:
    """The requests of the items that can be judged."""
    return [item.asked for item in items if isinstance(item.asked, JudgeRequest)]


async def judge_items(judge: Judge, items: Sequence[BatchItem]) -> list[Outcome]:
    """Judges all items in one engine call; an item that cannot be judged keeps its error.

    Raises:
        UnavailableError: The engine, or the store, is unavailable; nothing was judged.
        JudgmentFailedError: The engine returned a wrong number of answers; nothing was judged.
    """
    judged = iter(await judge.judge_batch(requests_of(items)))
    return [next(judged) if isinstance(item.asked, JudgeRequest) else item.asked for item in items]
