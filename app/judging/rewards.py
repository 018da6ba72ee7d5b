"""Rewards: chooses the pairs of groups of responses, has them judged at once, and scores them.

Responses with equal texts are one player: they share its comparisons and its reward. All blank
responses are equal.
"""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from app.core.comparison import Case, Comparison, Criterion, Turn
from app.core.errors import (
    BatchTooLargeError,
    ControlTokenError,
    InvalidComparisonError,
    PromptTooLongError,
    ScopeJudgeError,
)
from app.core.messages import without_thought
from app.flow import off_loop
from app.judging.admission import Admission
from app.judging.judge import Asked, Judge, Outcome
from scope_judge.records import NoReward

# Errors that the texts of one comparison cause; the other comparisons are not affected.
_OF_TEXTS = (PromptTooLongError, ControlTokenError, InvalidComparisonError)
# Each turn of a question takes a fixed time, which counts as so many characters.
_PER_TEXT = 64
_ADVICE = (
    'send fewer responses or groups at once, or fewer opponents; "opponents": k makes n k / 2 '
    "comparisons of n responses"
)
# A number of opponents, or all of them.
Opponents = int | Literal["all"]
# Why a comparison gives no points. `suspended`: an alarm of the audits is active. `infeasible`: no
# threshold keeps alpha. `abstained`: the judge abstained for another reason. `failed`: an error.
NoPoints = Literal["suspended", "infeasible", "abstained", "failed"]
# A response whose comparisons have several reasons gets the first of these.
_PRECEDENCE: tuple[NoPoints, ...] = ("suspended", "infeasible", "abstained", "failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Responses, which may be blank, to one question.

    Args:
        reference: The text that each response is compared with, which is not blank; None if the
            responses are compared with each other.
    """

    question: tuple[Turn, ...]
    responses: tuple[str, ...]
    reference: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRule:
    """How comparisons become rewards.

    Args:
        kind: Points of an accepted comparison: "hard" for +1 and -1, "soft" for 2 p_bar - 1.
        empty: Whether an empty response gets -1, or no reward. Nothing is compared with it.
        thoughts: Whether a thought at the beginning of a response is removed before judging. A
            response that is only a thought is empty.
        overlong: Whether a response that is too long for the judge gets -1, or no reward.
        min_accepted: Accepted comparisons that a reward needs; below 1, their share.
    """

    criterion: Criterion
    kind: Literal["hard", "soft"] = "hard"
    opponents: Opponents = "all"
    empty: Literal["loses", "null"] = "loses"
    thoughts: Literal["remove", "keep"] = "remove"
    overlong: Literal["loses", "null"] = "null"
    min_accepted: float = 1


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
        ties: For each response, the number of other texts that equal its own.
        has_text: Whether a response or the reference is not blank.
    """

    of: tuple[int, ...]
    texts: tuple[int, ...]
    empty: int | None
    ties: tuple[int, ...]
    has_text: bool

    @classmethod
    def among(cls, responses: Sequence[str], reference: str | None = None) -> "Players":
        """Merges equal texts. With a reference, only that is another text."""
        first: dict[str, int] = {}
        texts = (text if text.strip() else "" for text in responses)
        of = tuple(first.setdefault(text, i) for i, text in enumerate(texts))
        sizes = Counter(of)
        different = tuple(i for text, i in first.items() if text)
        return cls(
            of=of,
            texts=different,
            empty=first.get(""),
            ties=tuple(
                sizes[player] - 1 if reference is None else int(responses[player] == reference)
                for player in of
            ),
            has_text=bool(different) or reference is not None,
        )


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
    """

    reward: float | None
    reason: NoReward | None
    accepted: int
    compared: int
    ties: int


class GroupRewards(NamedTuple):
    """The standings of a group's responses, in their order, and the outcome of each judged pair."""

    standings: tuple[Standing, ...]
    compared: tuple[tuple[Pairing, Outcome], ...]


class Rewarder:
    """Computes rewards of groups of responses.

    Args:
        most_characters: Most characters of all comparisons of one request. A question is in each
            of them, so that they can be a thousand times as long as the request.
    """

    def __init__(
        self,
        judge: Judge,
        admission: Admission,
        *,
        most: int,
        most_characters: int,
    ) -> None:
        self._judge = judge
        self._admission = admission
        self._most = most
        self._most_characters = most_characters

    async def reward(
        self, groups: Sequence[Group], rule: RewardRule, *, by: str = "service"
    ) -> list[GroupRewards]:
        """Computes the rewards of some groups; all their comparisons are one engine call.

        Raises:
            ScopeJudgeError: No comparison could be judged, because of an error that all have in
                common, or the groups make too many or too long comparisons.
        """
        groups, players, pairs, asked = await off_loop(self._prepared, groups, rule)
        async with self._admission.admit(len(asked), patient=True):
            outcomes = await self._judge.judge_batch(asked, by=by)
        _raise_common_error(outcomes)
        judged = iter(outcomes)
        compared = [tuple((pair, next(judged)) for pair in of_group) for of_group in pairs]
        return await off_loop(
            lambda: [_scored(*one, rule) for one in zip(groups, players, compared, strict=True)]
        )

    def _prepared(
        self, groups: Sequence[Group], rule: RewardRule
    ) -> tuple[Sequence[Group], list[Players], list[tuple[Pairing, ...]], list[Asked]]:
        if rule.thoughts == "remove":
            groups = list(map(_without_thoughts, groups))
        players = [Players.among(group.responses, group.reference) for group in groups]
        # Checked before any pair is made: a body of 2 MiB may have 10^10 of them.
        self._check_size(groups, players, rule)
        both = zip(groups, players, strict=True)
        pairs = [pairs_of(*one, rule.opponents) for one in both]
        asked = [
            (_comparison(group, pair), rule.criterion)
            for group, of_group in zip(groups, pairs, strict=True)
            for pair in of_group
        ]
        return groups, players, pairs, asked

    def _check_size(
        self, groups: Sequence[Group], players: Sequence[Players], rule: RewardRule
    ) -> None:
        sizes = [_size(*both, rule.opponents) for both in zip(groups, players, strict=True)]
        count = sum(comparisons for comparisons, _ in sizes)
        if count > self._most:
            raise BatchTooLargeError(
                f"the responses make {count} comparisons and the limit is {self._most} (the "
                f"smaller one of 1,000 and half of SCOPE_MAX_PENDING): {_ADVICE}"
            )
        characters = sum(characters for _, characters in sizes)
        if characters > self._most_characters:
            raise BatchTooLargeError(
                f"the {count} comparisons have {characters} characters together, because each one "
                f"has the question and two responses, and the limit is {self._most_characters} "
                f"(16 times SCOPE_MAX_BODY_BYTES): {_ADVICE}"
            )


def _comparison(group: Group, pair: Pairing) -> Comparison:
    other = group.responses[pair.b] if group.reference is None else group.reference
    return Comparison(group.question, (group.responses[pair.a],), (other,))


def _without_thoughts(group: Group) -> Group:
    reference = group.reference
    return replace(
        group,
        responses=tuple(map(without_thought, group.responses)),
        reference=reference and (without_thought(reference) or reference),
    )


def _size(group: Group, players: Players, opponents: Opponents) -> tuple[int, int]:
    """Number and characters of a group's comparisons, computed without making them."""
    number = len(players.texts)
    of_texts = sum(len(group.responses[player]) for player in players.texts)
    of_question = sum(len(turn.content) + _PER_TEXT for turn in group.question)
    if group.reference is not None:
        return number, number * (of_question + len(group.reference)) + of_texts
    pairs = number_of_pairs(number, opponents)
    met = number - 1 if opponents == "all" else min(opponents, number - 1)
    return pairs, pairs * of_question + max(0, met) * of_texts


def _raise_common_error(outcomes: Sequence[Outcome]) -> None:
    """Raises the error that no text has caused, if there is no judgment at all.

    All comparisons share a criterion, so an error of its calibration set is the request's error.
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, ScopeJudgeError)]
    if len(errors) == len(outcomes):
        for error in errors:
            if not isinstance(error, _OF_TEXTS):
                raise error


def _scored(
    group: Group,
    players: Players,
    compared: Sequence[tuple[Pairing, Outcome]],
    rule: RewardRule,
) -> GroupRewards:
    results = [_result(group, pair, outcome, rule) for pair, outcome in compared]
    return GroupRewards(standings(players, results, rule), tuple(compared))


def _result(group: Group, pair: Pairing, outcome: Outcome, rule: RewardRule) -> Result:
    if isinstance(outcome, PromptTooLongError):
        # The longer one is too long; of a reference, its index is beyond the responses.
        texts = [*group.responses, group.reference or ""]
        overlong = max(pair, key=lambda player: len(texts[player]))
        return Result(pair=pair, points=None, reason="failed", overlong=overlong)
    if not isinstance(outcome, Case):
        return Result(pair=pair, points=None, reason="failed")
    judgment = outcome.judgment
    if judgment.verdict == "abstain":
        if judgment.reason == "suspended" or judgment.reason == "infeasible":
            return Result(pair=pair, points=None, reason=judgment.reason)
        return Result(pair=pair, points=None)
    if rule.kind == "soft":
        assert judgment.p_bar is not None, "a verdict has a preference"
        return Result(pair=pair, points=2.0 * judgment.p_bar - 1.0)
    return Result(pair=pair, points=1.0 if judgment.verdict == "A" else -1.0)


def number_of_pairs(players: int, opponents: Opponents) -> int:
    """The number of comparisons of a group: `k` opponents cost n k / 2, rounded up."""
    if opponents == "all" or opponents >= players - 1:
        return players * (players - 1) // 2
    return (players * opponents + 1) // 2


def pairs_of(group: Group, players: Players, opponents: Opponents) -> tuple[Pairing, ...]:
    """The pairs of a group that the judge compares.

    With `k` opponents, the players are put on a circle, ordered by a digest of the question and
    their text, and each meets its nearest neighbors on both sides; for an odd `k` also the
    opposite one. So the pairs depend on the texts alone, and not on the order of the responses. If
    both the number of players and `k` are odd, one player meets one more.

    Args:
        group: The group. With a reference, whose index is the number of responses, each different
            text meets that.
        opponents: Number of opponents of each player; "all" for everybody else.
    """
    texts, size = group.responses, len(players.texts)
    if group.reference is not None:
        others = (player for player in players.texts if texts[player] != group.reference)
        return tuple(Pairing(player, len(texts)) for player in others)
    if opponents == "all" or opponents >= size - 1:
        return tuple(itertools.starmap(Pairing, itertools.combinations(players.texts, 2)))
    question = "\0".join(turn.content for turn in group.question)
    circle = sorted(players.texts, key=lambda player: _digest(question, texts[player]))
    return tuple(
        Pairing(*sorted((circle[i], circle[j]))) for i, j in _circle_pairs(size, opponents)
    )


def standings(
    players: Players, results: Iterable[Result], rule: RewardRule
) -> tuple[Standing, ...]:
    """The standing of each response.

    A reward comes from accepted comparisons alone. An empty response gets -1 by rule, and nobody
    gets anything for being better than it: it was never judged. Among empty responses alone, none
    is worse than another one. A response is overlong if it was in all of its comparisons.
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
        needed = rule.min_accepted * (1 if rule.min_accepted >= 1 else compared[player])
        reward = math.fsum(mine) / len(mine) if mine and len(mine) >= needed else None
        reason: NoReward | None = None
        too_long = 0 < overlong[player] == compared[player]
        is_empty = player == players.empty
        loses = rule.empty == "loses" and players.has_text
        if (is_empty and loses) or (too_long and rule.overlong == "loses"):
            reward = -1.0
        elif is_empty and rule.empty == "null":
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

    return tuple(map(standing, players.of, players.ties))


def _circle_pairs(size: int, opponents: int) -> Iterator[tuple[int, int]]:
    """Places on a circle that meet; fewer than `size` - 1 opponents each."""
    for step in range(1, opponents // 2 + 1):
        yield from ((place, (place + step) % size) for place in range(size))
    if opponents % 2:
        yield from ((place, place + size // 2) for place in range((size + 1) // 2))


def _digest(question: str, response: str) -> bytes:
    inner = hashlib.sha256(question.encode()).digest()
    return hashlib.sha256(inner + response.encode()).digest()
