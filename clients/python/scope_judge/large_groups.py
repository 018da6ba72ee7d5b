"""Rewards of a group that makes more comparisons than one request may have.

Each response is the reference of one request with all responses before it, so that the service
judges every pair once. The rewards are those of POST /rewards/group.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scope_judge.answers import Comparison, ComparisonError, GroupRewards
from scope_judge.comparisons import text_of
from scope_judge.errors import TooLargeError
from scope_judge.exchange import Steps

Ask = Callable[[dict[str, Any]], Steps[GroupRewards]]


def is_splittable(error: TooLargeError, fields: Mapping[str, Any]) -> bool:
    """Whether the group can be judged in parts: only the service knows the pairs of a number k.

    A group with a reference is not split here either: fewer responses in each do the same.
    """
    is_batch = error.code in ("batch_too_large", "body_too_large")
    meet_each_other = fields.get("reference") is None and fields.get("opponents", "all") == "all"
    return is_batch and meet_each_other


def in_requests(fields: Mapping[str, Any], ask: Ask) -> Steps[GroupRewards]:
    """The rewards of a group, from several requests.

    Args:
        fields: The fields of POST /rewards/group.
        ask: Sends the fields of POST /rewards/reference.

    Raises:
        ScopeError: There are no rewards; also a TooLargeError if a single pair is too large.
    """
    responses = list(fields["responses"])
    players = _players(responses)
    met = [i for i, player in enumerate(players) if player == i and not _is_blank(responses[i])]
    common = {k: v for k, v in fields.items() if k not in ("responses", "opponents")}
    comparisons: list[Comparison] = []
    errors: list[ComparisonError] = []
    for place, b in enumerate(met):
        asked = {**common, "comparisons": True, "reference": responses[b]}
        for found, before in (yield from _judged(asked, responses, met[:place], ask)):
            comparisons += [replace(one, a=before[one.a], b=b) for one in found.comparisons or ()]
            errors += [replace(one, a=before[one.a], b=b) for one in found.errors]
    comparisons.sort(key=lambda one: (one.a, one.b or 0))
    errors.sort(key=lambda one: (one.a, one.b or 0))
    return _rewards(fields, players, comparisons, errors)


def _judged(
    asked: dict[str, Any], responses: Sequence[Any], before: Sequence[int], ask: Ask
) -> Steps[list[tuple[GroupRewards, Sequence[int]]]]:
    """Compares some responses with a reference, in halves if they are too many."""
    if not before:
        return []
    try:
        return [((yield from ask({**asked, "responses": [responses[i] for i in before]})), before)]
    except TooLargeError:
        if len(before) == 1:
            raise
    half = len(before) // 2
    first = yield from _judged(asked, responses, before[:half], ask)
    return first + (yield from _judged(asked, responses, before[half:], ask))


def _players(responses: Sequence[Any]) -> list[int]:
    """For each response, the first one with an equal text."""
    first: dict[str, int] = {}
    texts = ("" if _is_blank(response) else text_of(response) for response in responses)
    return [first.setdefault(text, i) for i, text in enumerate(texts)]


def _is_blank(response: Any) -> bool:
    return not text_of(response).strip()


def _rewards(
    fields: Mapping[str, Any],
    players: Sequence[int],
    comparisons: list[Comparison],
    errors: list[ComparisonError],
) -> GroupRewards:
    """Scores the comparisons as the service does."""
    points: dict[int, list[float]] = {}
    compared, failed, walkovers = Counter[int](), Counter[int](), Counter[int]()
    for comparison in comparisons:
        assert comparison.b is not None
        compared.update((comparison.a, comparison.b))
        judgment = comparison.judgment
        if judgment.verdict != "abstain":
            won = 1.0 if judgment.verdict == "A" else -1.0
            mine = 2 * judgment.p_bar - 1 if fields.get("reward") == "soft" else won
            points.setdefault(comparison.a, []).append(mine)
            points.setdefault(comparison.b, []).append(-mine)
    for error in errors:
        assert error.b is not None
        compared.update((error.a, error.b))
        failed.update((error.a, error.b))
    texts = [i for i in set(players) if not _is_blank(fields["responses"][i])]
    empty = next((i for i in set(players) if _is_blank(fields["responses"][i])), None)
    if empty is not None and fields.get("empty", "loses") == "loses":
        for text in texts:
            compared.update((text, empty))
            walkovers.update((text, empty))
            points.setdefault(text, []).append(1.0)
            points.setdefault(empty, []).append(-1.0)
    means = {player: math.fsum(mine) / len(mine) for player, mine in points.items()}
    sizes = Counter(players)
    reasons = {
        player: _reason(compared[player], failed[player], sizes[player], is_empty=player == empty)
        for player in set(players)
        if player not in means
    }
    return GroupRewards(
        rewards=tuple(means.get(player) for player in players),
        reasons=tuple(reasons.get(player) for player in players),
        accepted=tuple(len(points.get(player, ())) for player in players),
        compared=tuple(compared[player] for player in players),
        walkovers=tuple(walkovers[player] for player in players),
        ties=tuple(sizes[player] - 1 for player in players),
        errors=tuple(errors),
        comparisons=tuple(comparisons) if fields.get("comparisons") else None,
    )


def _reason(compared: int, failed: int, size: int, *, is_empty: bool) -> str:
    """Why a response has no reward, in the service's words."""
    if compared:
        return "failed" if failed == compared else "abstained"
    if is_empty:
        return "empty"
    return "tied" if size > 1 else "unopposed"
