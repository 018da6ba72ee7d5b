"""Builds the records of judgments and rewards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from app.api.problems import problem_of
from app.api.routing import made
from app.core.comparison import Case
from app.core.errors import RequestError, ScopeJudgeError
from app.core.preference import Preference
from app.flow import CURRENT_FLOW
from app.judging.judge import Outcome
from app.judging.rewards import GroupRewards
from scope_judge import records

G = TypeVar("G", bound=records.Rewards)


def single_judgment(
    case: Case, identifier: str | int | None, *, explanation: str | None = None
) -> records.SingleJudgment:
    """The judgment of the request that is being answered."""
    return made(
        records.SingleJudgment,
        case.judgment,
        id=identifier,
        words=to_text(case),
        explanation=explanation,
        usage=usage_of_request(),
    )


def judgment_batch(
    ids: Iterable[str | int | None],
    outcomes: Iterable[Outcome],
    explanations: Mapping[int, str | None] = MappingProxyType({}),
) -> records.JudgmentBatch:
    """The outcomes of the batch of the request that is being answered."""
    return records.JudgmentBatch(
        results=tuple(
            records.ItemError(id=identifier, error=problem_of(outcome))
            if isinstance(outcome, ScopeJudgeError)
            else replace(outcome.judgment, id=identifier, explanation=explanations.get(place))
            for place, (identifier, outcome) in enumerate(zip(ids, outcomes, strict=True))
        ),
        usage=usage_of_request(),
    )


def usage_of_request() -> records.RequestUsage:
    """The usage of the request that is being answered."""
    usage = CURRENT_FLOW.get().usage
    large = None
    if usage["escalated"]:
        large = records.LargeUsage(
            comparisons=usage["escalated"],
            engine_prompts=usage["large_prompts"],
            prompt_tokens=usage["large_prompt_tokens"],
        )
    return records.RequestUsage(
        engine_prompts=usage["engine_prompts"],
        prompt_tokens=usage["prompt_tokens"],
        large=large,
    )


def rewards(group: GroupRewards, *, comparisons: bool, kind: type[G], **more: Any) -> G:
    """The rewards of a group; `comparisons` includes each judgment."""
    rows = group.standings

    def other(place: int) -> int | None:
        # The index of the reference is the number of responses.
        return place if place < len(rows) else None

    pairs = [(*pair, outcome) for pair, outcome in group.compared]
    judged = [(a, b, outcome.judgment) for a, b, outcome in pairs if isinstance(outcome, Case)]
    return kind(
        rewards=tuple(row.reward for row in rows),
        reasons=tuple(row.reason for row in rows),
        accepted=tuple(row.accepted for row in rows),
        compared=tuple(row.compared for row in rows),
        ties=tuple(row.ties for row in rows),
        errors=tuple(
            records.ComparisonError(a=a, b=other(b), error=problem_of(outcome))
            for a, b, outcome in pairs
            if isinstance(outcome, ScopeJudgeError)
        ),
        # All comparisons of a request have one judge, one criterion and one version of the set.
        basis=made(records.Basis, judged[0][2]) if judged else None,
        comparisons=tuple(
            records.Comparison(a=a, b=other(b), judgment=judgment) for a, b, judgment in judged
        )
        if comparisons
        else None,
        **more,
    )


def rewards_batch(
    groups: Iterable[GroupRewards | RequestError], *, comparisons: bool
) -> records.RewardsBatch:
    """The outcomes of several groups."""
    return records.RewardsBatch(
        groups=tuple(
            records.ItemError(id=None, error=problem_of(group))
            if isinstance(group, RequestError)
            else rewards(group, comparisons=comparisons, kind=records.Rewards)
            for group in groups
        ),
        usage=usage_of_request(),
    )


# OpenRLHF has no value for "no reward". It is a 0, with a 1 beside it under the reason. A response
# that is compared with a reference has one comparison.
_FLAGS = tuple(
    reason for reason in get_args(records.NoReward) if reason not in ("unopposed", "few_accepted")
)


def openrlhf_rewards(groups: Sequence[GroupRewards]) -> dict[str, Any]:
    """The rewards of samples, each of which is a group of one response, in OpenRLHF's format."""
    rows = [group.standings[0] for group in groups]
    rewards = [row.reward or 0.0 for row in rows]
    return {
        "rewards": rewards,
        "scores": [(reward + 1.0) / 2.0 for reward in rewards],
        "extra_logs": {name: [int(row.reason == name) for row in rows] for name in _FLAGS},
    }


def to_text(case: Case) -> str:
    """Says what the judge decided, and why it abstained if it did."""
    judgment, preference = case.judgment, case.preference
    if preference is None or judgment.reason is not None:
        return f"The judge abstains: {_reason(case)}.{_order(preference)}"
    better = f"Response {judgment.verdict} is better"
    if judgment.threshold is None:
        return f"{better}. No alpha was given, so nothing is promised."
    uncertainty, threshold = _apart(preference.uncertainty, judgment.threshold)
    return (
        f"{better}: the uncertainty {uncertainty} is not above {threshold}, the threshold of "
        f"{case.criterion.words}."
    )


def _apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits, at least four, as show that they differ."""
    written = (f"{one:.4f}", f"{other:.4f}")
    for digits in (6, 8, 12):
        if one == other or written[0] != written[1]:
            break
        written = (f"{one:.{digits}f}", f"{other:.{digits}f}")
    return written


def _reason(case: Case) -> str:
    judgment, criterion, preference = case.judgment, case.criterion, case.preference
    match judgment.reason:
        case "thought_unfinished":
            return (
                "its thought did not end within SCOPE_THINK_TOKENS. Asking again gives the same "
                "answer"
            )
        case "escalation_unavailable":
            return (
                "the small judge is not sure enough, and the large one cannot be asked now. Asking "
                "again later may give a verdict"
            )
        case "off_task":
            return (
                "the two labels have too little of its probability, so it may not be answering the "
                "question (SCOPE_MIN_LABEL_MASS)"
            )
        case "no_preference":
            return "it finds both responses equally good"
        case "suspended":
            return (
                f"audits have shown more errors than promised under {criterion.words}, and "
                "verdicts are suspended until the set has a new version"
            )
        case "infeasible":
            return (
                f"the labels of the set {criterion.calibration!r} are not enough for "
                f"{criterion.words}, so no verdict can keep that promise"
            )
        case _:
            assert preference is not None
            assert judgment.threshold is not None, "only a threshold makes a pair uncertain"
            uncertainty, threshold = _apart(preference.uncertainty, judgment.threshold)
            return (
                f"its uncertainty {uncertainty} is above {threshold}, the threshold of "
                f"{criterion.words}"
            )


def _order(preference: Preference | None) -> str:
    """Says so if the two orders of the responses lead to different sides."""
    if preference is None:
        return ""
    if preference.p_fwd > 0.5 > preference.p_rev:
        return " It prefers the response that it reads first, in both orders."
    if preference.p_fwd < 0.5 < preference.p_rev:
        return " It prefers the response that it reads second, in both orders."
    return ""
