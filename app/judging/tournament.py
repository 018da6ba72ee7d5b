"""Chooses the pairs of a group of responses that are compared, and computes the rewards.

Responses with equal texts are one player: they share its comparisons and its reward. All blank
responses are equal.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scope_judge.records import NoReward

# A number of opponents, or all of them.
Opponents = int | Literal["all"]
# Why a comparison gives no points. `suspended`: an alarm of the audits is active. `infeasible`: no
# threshold keeps alpha. `abstained`: the judge abstained for another reason. `failed`: an error.
NoPoints = Literal["suspended", "infeasible", "abstained", "failed"]
# A response whose comparisons have several reasons gets the first of these.
_PRECEDENCE: tuple[NoPoints, ...] = ("suspended", "infeasible", "abstained", "failed")


class Pairing(NamedTuple):
    """Two different responses, by their indices."""

    a: int
    b: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Players:
    """The different texts of a group.

    Args:
        of: For each response, the first response with an equal text: its player.
        texts: The players whose text is not blank.
        empty: The player of the blank responses; None if there are none.
    """

    of: tuple[int, ...]
    texts: tuple[int, ...]
    empty: int | None

    @classmethod
    def among(cls, responses: Sequence[str]) -> "Players":
        """Merges equal texts."""
        first: dict[str, int] = {}
        texts = (text if text.strip() else "" for text in responses)
        of = tuple(first.setdefault(text, i) for i, text in enumerate(texts))
        return cls(of=of, texts=tuple(i for text, i in first.items() if text), empty=first.get(""))


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The pairs of a group.

    Args:
        player_of: For each response, its player.
        ties: For each response, the number of other texts that equal its own.
        judged: The pairs that the judge compares.
        loser: The player of the empty responses if these get -1; otherwise None.
        left_out: The player of the empty responses if these get no reward; otherwise None.
    """

    player_of: tuple[int, ...]
    ties: tuple[int, ...]
    judged: tuple[Pairing, ...]
    loser: int | None
    left_out: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The outcome of one judged pair.

    Args:
        points: Points of the first response in [-1, 1]; None if the comparison was not accepted.
        reason: Why there are no points; unused where there are some.
        overlong: The player whose response is too long for the judge; None without one.
    """

    pair: Pairing
    points: float | None
    reason: NoPoints = "abstained"
    overlong: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The reward of one response.

    Args:
        reward: Mean of its points; None without enough accepted comparisons. An empty or overlong
            response may have -1 without any.
        reason: Why there is no reward; None if there is one.
    """

    reward: float | None
    reason: NoReward | None
    accepted: int
    compared: int
    ties: int


def number_of_pairs(players: int, opponents: Opponents) -> int:
    """The number of comparisons of a group: `k` opponents cost n k / 2, rounded up."""
    if opponents == "all" or opponents >= players - 1:
        return players * (players - 1) // 2
    return (players * opponents + 1) // 2


def group_schedule(
    question: str,
    responses: Sequence[str],
    players: Players,
    opponents: Opponents,
    *,
    empty_loses: bool,
) -> Schedule:
    """Lets the responses to one question meet each other.

    With `k` opponents, the players are put on a circle, ordered by a digest of the question and
    their text, and each meets its nearest neighbors on both sides; for an odd `k` also the
    opposite one. So the pairs depend on the texts alone, and not on the order of the responses. If
    both the number of players and `k` are odd, one player meets one more.

    Args:
        opponents: Number of opponents of each player; "all" for everybody else.
        empty_loses: Whether an empty response gets -1, or no reward.
    """
    size = len(players.texts)
    if opponents == "all" or opponents >= size - 1:
        judged = [
            Pairing(a, b) for at, a in enumerate(players.texts) for b in players.texts[at + 1 :]
        ]
    else:
        circle = sorted(players.texts, key=lambda i: _digest(question, responses[i]))
        judged = [
            Pairing(*sorted((circle[i], circle[j]))) for i, j in _circle_pairs(size, opponents)
        ]
    sizes = Counter(players.of)
    return Schedule(
        player_of=players.of,
        ties=tuple(sizes[player] - 1 for player in players.of),
        judged=tuple(judged),
        # Among empty responses alone, none is worse than another one.
        loser=players.empty if empty_loses and players.texts else None,
        left_out=None if empty_loses else players.empty,
    )


def reference_schedule(
    responses: Sequence[str], players: Players, reference: str, *, empty_loses: bool
) -> Schedule:
    """Lets each response meet the reference, whose index is the number of responses.

    Args:
        reference: The reference, which is not blank.
        empty_loses: Whether an empty response gets -1, or no reward.
    """
    end = len(responses)
    return Schedule(
        player_of=players.of,
        ties=tuple(int(responses[player] == reference) for player in players.of),
        judged=tuple(
            Pairing(player, end) for player in players.texts if responses[player] != reference
        ),
        loser=players.empty if empty_loses else None,
        left_out=None if empty_loses else players.empty,
    )


def standings(
    schedule: Schedule,
    results: Iterable[Result],
    *,
    min_accepted: float = 1,
    overlong_loses: bool = False,
) -> tuple[Standing, ...]:
    """The standing of each response.

    A reward comes from accepted comparisons alone. An empty response gets -1 by rule, and nobody
    gets anything for being better than it: it was never judged.

    Args:
        min_accepted: Accepted comparisons that a reward needs; below 1, their share of the
            response's comparisons.
        overlong_loses: Whether a response that was too long in all of its comparisons gets -1, like
            an empty one.
    """
    points: dict[int, list[float]] = {}
    reasons: dict[int, set[NoPoints]] = {}
    compared, overlong = Counter[int](), Counter[int | None]()
    for result in results:
        compared.update(result.pair)
        overlong[result.overlong] += 1
        if result.points is None:
            for player in result.pair:
                reasons.setdefault(player, set()).add(result.reason)
        else:
            points.setdefault(result.pair.a, []).append(result.points)
            points.setdefault(result.pair.b, []).append(-result.points)

    def standing(player: int, ties: int) -> Standing:
        mine = points.get(player, [])
        needed = min_accepted if min_accepted >= 1 else min_accepted * compared[player]
        reward = math.fsum(mine) / len(mine) if mine and len(mine) >= needed else None
        reason: NoReward | None = None
        too_long = 0 < overlong[player] == compared[player]
        if player == schedule.loser or (too_long and overlong_loses):
            reward = -1.0
        elif player == schedule.left_out:
            reason = "empty"
        elif player in reasons and not mine:
            reason = next(one for one in _PRECEDENCE if one in reasons[player])
        elif not mine:
            reason = "tied" if ties else "unopposed"
        elif reward is None:
            reason = "few_accepted"
        return Standing(
            reward=reward,
            reason=reason,
            accepted=len(mine),
            compared=compared[player],
            ties=ties,
        )

    return tuple(map(standing, schedule.player_of, schedule.ties))


def _circle_pairs(size: int, opponents: int) -> Iterator[tuple[int, int]]:
    """Places on a circle that meet; fewer than `size` - 1 opponents each."""
    for step in range(1, opponents // 2 + 1):
        yield from ((place, (place + step) % size) for place in range(size))
    if opponents % 2:
        yield from ((place, place + size // 2) for place in range((size + 1) // 2))


def _digest(question: str, response: str) -> bytes:
    inner = hashlib.sha256(question.encode()).digest()
    return hashlib.sha256(inner + response.encode()).digest()
