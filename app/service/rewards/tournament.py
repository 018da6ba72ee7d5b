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

# A number of opponents, or all of them.
Opponents = int | Literal["all"]
# Why a response has no reward. `abstained`: it was compared and no comparison was accepted.
# `failed`: every comparison failed. `tied`: it was not compared, because another text equals its
# own. `empty`: empty responses get no reward. `unopposed`: nothing could be compared with it.
NoReward = Literal["abstained", "failed", "tied", "empty", "unopposed"]


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
        walkovers: The pairs that the first wins without the judge, because the second is empty.
        left_out: The player of the empty responses if these get no reward; otherwise None.
    """

    player_of: tuple[int, ...]
    ties: tuple[int, ...]
    judged: tuple[Pairing, ...]
    walkovers: tuple[Pairing, ...]
    left_out: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The outcome of one judged pair.

    Args:
        pair: The pair.
        points: Points of the first response in [-1, 1]; None if the comparison was not accepted.
        failed: Whether there is an error instead of a judgment.
    """

    pair: Pairing
    points: float | None
    failed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The reward of one response.

    Args:
        reward: Mean of its points; None without an accepted comparison.
        reason: Why there is no reward; None if there is one.
        accepted: Number of comparisons that count in the reward, walkovers included.
        compared: Number of its comparisons, walkovers included.
        walkovers: Number of comparisons that were decided without the judge.
        ties: Number of other texts that equal its own, which are not compared.
    """

    reward: float | None
    reason: NoReward | None
    accepted: int
    compared: int
    walkovers: int
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
    their text, and each meets its nearest neighbours on both sides; for an odd `k` also the
    opposite one. So the pairs depend on the texts alone, and not on the order of the responses. If
    both the number of players and `k` are odd, one player meets one more.

    Args:
        question: The question, for the digest.
        responses: The responses.
        players: Their players.
        opponents: Number of opponents of each player; "all" for everybody else.
        empty_loses: Whether an empty response loses against each text, or gets no reward.
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
    empty = players.empty
    beaten = () if empty is None or not empty_loses else (empty,)
    sizes = Counter(players.of)
    return Schedule(
        player_of=players.of,
        ties=tuple(sizes[player] - 1 for player in players.of),
        judged=tuple(judged),
        walkovers=tuple(Pairing(text, loser) for loser in beaten for text in players.texts),
        left_out=None if empty_loses else empty,
    )


def reference_schedule(
    responses: Sequence[str], players: Players, reference: str, *, empty_loses: bool
) -> Schedule:
    """Lets each response meet the reference, whose index is the number of responses.

    Args:
        responses: The responses.
        players: Their players.
        reference: The reference, which is not blank.
        empty_loses: Whether an empty response loses against the reference, or gets no reward.
    """
    end = len(responses)
    loser = players.empty if empty_loses else None
    return Schedule(
        player_of=players.of,
        ties=tuple(int(responses[player] == reference) for player in players.of),
        judged=tuple(
            Pairing(player, end) for player in players.texts if responses[player] != reference
        ),
        walkovers=() if loser is None else (Pairing(end, loser),),
        left_out=None if empty_loses else players.empty,
    )


def standings(schedule: Schedule, results: Iterable[Result]) -> tuple[Standing, ...]:
    """The standing of each response."""
    points: dict[int, list[float]] = {}
    compared, failed, unjudged = Counter[int](), Counter[int](), Counter[int]()
    walkovers = (Result(pair=pair, points=1.0) for pair in schedule.walkovers)
    for pair in schedule.walkovers:
        unjudged.update(pair)
    for result in (*results, *walkovers):
        compared.update(result.pair)
        if result.failed:
            failed.update(result.pair)
        if result.points is not None:
            points.setdefault(result.pair.a, []).append(result.points)
            points.setdefault(result.pair.b, []).append(-result.points)

    def standing(player: int, ties: int) -> Standing:
        mine = points.get(player, [])
        number = compared[player]
        reason: NoReward | None = None
        if not mine:
            if number:
                reason = "failed" if failed[player] == number else "abstained"
            elif player == schedule.left_out:
                reason = "empty"
            else:
                reason = "tied" if ties else "unopposed"
        reward = math.fsum(mine) / len(mine) if mine else None
        return Standing(
            reward=reward,
            reason=reason,
            accepted=len(mine),
            compared=number,
            walkovers=unjudged[player],
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
