"""Computes rewards: schedules the comparisons of groups, judges them at once, and scores them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.core.comparison import Comparison, Criterion, Judgment, Turn
from app.core.errors import (
    BatchTooLargeError,
    ControlTokenError,
    InvalidComparisonError,
    PromptTooLongError,
    ScopeJudgeError,
)
from app.core.messages import without_thought
from app.judging.admission import Admission
from app.judging.judge import Asked, Judge, Outcome
from app.judging.tournament import (
    Opponents,
    Pairing,
    Players,
    Result,
    Schedule,
    Standing,
    group_schedule,
    number_of_pairs,
    reference_schedule,
    standings,
)
from app.off_loop import off_loop

# Errors that the texts of one comparison cause; the other comparisons are not affected.
_OF_TEXTS = (PromptTooLongError, ControlTokenError, InvalidComparisonError)
# Each turn of a question takes a fixed time, which counts as so many characters.
_PER_TEXT = 64
_ADVICE = (
    'send fewer responses or groups at once, or fewer opponents; "opponents": k makes n k / 2 '
    "comparisons of n responses"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Responses to one question.

    Args:
        responses: The responses; they may be blank.
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
        criterion: The conditions under which a comparison is accepted.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRewards:
    """The standings of a group's responses, in their order, and the outcome of each judged pair."""

    standings: tuple[Standing, ...]
    compared: tuple[tuple[Pairing, Outcome], ...]


class Rewarder:
    """Computes rewards of groups of responses.

    Args:
        admission: Counts the comparisons in progress; a reward waits there for its turn.
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
            BatchTooLargeError: The groups make more comparisons than one request may have, or
                longer ones.
            ScopeJudgeError: No comparison could be judged, because of an error that all have in
                common.
        """
        groups, schedules, requests = await off_loop(self._prepared, groups, rule)
        async with self._admission.admit(len(requests), patient=True):
            outcomes = await self._judge.judge_batch(requests, by=by)
        _raise_common_error(outcomes)
        return await off_loop(_scored, groups, schedules, outcomes, rule)

    def _prepared(
        self, groups: Sequence[Group], rule: RewardRule
    ) -> tuple[Sequence[Group], list[Schedule], list[Asked]]:
        if rule.thoughts == "remove":
            groups = list(map(_without_thoughts, groups))
        players = [Players.among(group.responses) for group in groups]
        # Checked before any pair is made: a body of 2 MiB may have 10^10 of them.
        self._check_size(groups, players, rule)
        schedules = [
            _schedule(group, of_group, rule)
            for group, of_group in zip(groups, players, strict=True)
        ]
        requests = [
            (_comparison(group, pair), rule.criterion)
            for group, schedule in zip(groups, schedules, strict=True)
            for pair in schedule.judged
        ]
        return groups, schedules, requests

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


def _schedule(group: Group, players: Players, rule: RewardRule) -> Schedule:
    empty_loses = rule.empty == "loses"
    if group.reference is not None:
        return reference_schedule(
            group.responses, players, group.reference, empty_loses=empty_loses
        )
    question = "\0".join(turn.content for turn in group.question)
    return group_schedule(
        question, group.responses, players, rule.opponents, empty_loses=empty_loses
    )


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
    groups: Sequence[Group],
    schedules: Sequence[Schedule],
    outcomes: Sequence[Outcome],
    rule: RewardRule,
) -> list[GroupRewards]:
    judged, rewards = iter(outcomes), list[GroupRewards]()
    for group, schedule in zip(groups, schedules, strict=True):
        compared = tuple((pair, next(judged)) for pair in schedule.judged)
        rows = standings(
            schedule,
            (_result(group, pair, outcome, rule) for pair, outcome in compared),
            min_accepted=rule.min_accepted,
            overlong_loses=rule.overlong == "loses",
        )
        rewards.append(GroupRewards(standings=rows, compared=compared))
    return rewards


def _result(group: Group, pair: Pairing, outcome: Outcome, rule: RewardRule) -> Result:
    if isinstance(outcome, PromptTooLongError):
        # The longer one is too long; of a reference, its index is beyond the responses.
        texts = [*group.responses, group.reference or ""]
        overlong = max(pair, key=lambda player: len(texts[player]))
        return Result(pair=pair, points=None, reason="failed", overlong=overlong)
    if not isinstance(outcome, Judgment):
        return Result(pair=pair, points=None, reason="failed")
    if outcome.verdict == "abstain":
        if outcome.reason == "suspended" or outcome.reason == "infeasible":
            return Result(pair=pair, points=None, reason=outcome.reason)
        return Result(pair=pair, points=None)
    if rule.kind == "soft":
        assert outcome.preference is not None, "a verdict has a preference"
        return Result(pair=pair, points=2.0 * outcome.preference.p_bar - 1.0)
    return Result(pair=pair, points=1.0 if outcome.verdict == "A" else -1.0)
