"""JSON of POST /rewards/nemo-gym/verify and POST /rewards/nemo-gym/compare."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from app.core.comparison import Judgment, Turn, Verdict
from app.core.errors import InvalidRequestError, ScopeJudgeError
from app.core.messages import response_of
from app.service.rewards.rewarder import Compared, Group, GroupRewards
from app.service.rewards.tournament import Standing
from app.wire.answers import Out
from app.wire.frameworks.samples import (
    REASONS,
    FrameworkIn,
    RewardQuery,
    flags_of,
    read,
    reference,
)
from app.wire.requests import encodable
from app.wire.rewards import GroupOptions, OpponentsIn, checked, question_turns

# Pydantic writes at most 255 levels.
_MOST_LEVELS = 100


def _number(value: Any) -> Any:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal()
    return int(value) if is_number else value


class ReferenceQuery(RewardQuery):
    """The options of NeMo Gym's /verify in the URL."""

    reference_key: str = Field(
        "ground_truth", description="Field of the body with the reference response."
    )


class CompareQuery(RewardQuery, GroupOptions):
    """The options of NeMo Gym's /compare in the URL."""

    # The last base class would set it otherwise.
    model_config = ConfigDict(strict=False)
    opponents: Annotated[OpponentsIn, BeforeValidator(_number)] = "all"


class NemoVerifyIn(FrameworkIn):
    """The body of NeMo Gym's /verify; the answer repeats it."""

    model_config = ConfigDict(extra="allow")
    responses_create_params: dict[str, Any]
    response: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _can_be_repeated(cls, value: Any) -> Any:
        # The second validation, by FastAPI, gets the model that the first one has made.
        if isinstance(value, dict):
            _check_levels(value)
            try:
                json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
            except ValueError:
                raise ValueError(
                    "the body contains NaN, Infinity or half of a surrogate pair"
                ) from None
        return value

    def group(self, reference_key: str) -> Group:
        """The group; raises InvalidRequestError if the rollout cannot be read."""
        fields = self.model_extra or {}
        label = fields.get(reference_key)
        return Group(
            question=read("responses_create_params", _asked, self.responses_create_params),
            responses=(read("response", _response_object, self.response),),
            reference=reference(reference_key[:64], label, "?reference_key="),
        )


class NemoVerifyOut(Out):
    """The body of the request with the reward; `mask_sample` is true where there is none."""

    model_config = ConfigDict(extra="allow")
    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float
    mask_sample: bool
    failure_reason: str | None
    abstained: int
    tied: int
    failed: int
    empty: int

    @classmethod
    def of(cls, body: NemoVerifyIn, rewards: GroupRewards) -> "NemoVerifyOut":
        """Converts the reward of a rollout."""
        (row,) = rewards.standings
        ours: dict[str, Any] = {
            "reward": row.reward or 0.0,
            "mask_sample": row.reward is None,
            "failure_reason": _reason(row, rewards),
            **flags_of(row),
        }
        return cls.model_validate({**body.model_dump(), **ours})


class NemoCompareIn(FrameworkIn):
    """The body of NeMo Gym's /compare."""

    conversation_history: list[Any] = Field(description="The messages before the responses.")
    response_objs: list[dict[str, Any]] = Field(description="Objects of the Responses API.")
    principle: str | None = Field(None, description="Must be null or missing.")

    def groups(self) -> list[Group]:
        """The group, or none without responses; raises InvalidRequestError if it is unreadable."""
        if self.principle is not None:
            raise InvalidRequestError(
                "principle: this judge compares by its prompt template (SCOPE_PROMPT_FILE), for "
                "which it is calibrated: leave the principle out"
            )
        if not self.response_objs:
            return []
        question = read("conversation_history", question_turns, self.conversation_history)
        responses = (
            read(f"response_objs.{i}", _response_object, response)
            for i, response in enumerate(self.response_objs)
        )
        return [Group(question=question, responses=tuple(responses))]


class NemoComparisonOut(Out):
    """One comparison; verdict A is for `response_i`. A failed one has an error and no verdict."""

    response_i: int
    response_j: int
    judge_idx: int
    verdict: Verdict | None
    reason: str | None
    p_bar: float | None
    error: str | None


class NemoCompareOut(Out):
    """The rewards of a group; no reward is 0, and `metrics` counts them by their reason."""

    rewards: list[float]
    comparison_results: list[NemoComparisonOut]
    metrics: dict[str, float]

    @classmethod
    def of(cls, groups: Sequence[GroupRewards]) -> "NemoCompareOut":
        """Converts the rewards of a group, if there is one."""
        rows = [row for group in groups for row in group.standings]
        results = [_comparison(compared) for group in groups for compared in group.compared]
        reasons = Counter(row.reason for row in rows)
        metrics: dict[str, int] = {
            "responses": len(rows),
            "comparisons": len(results),
            "accepted": sum(result.verdict in ("A", "B") for result in results),
            **{reason: reasons[reason] for reason in REASONS},
        }
        return cls(
            rewards=[row.reward or 0.0 for row in rows],
            comparison_results=results,
            metrics={name: float(number) for name, number in metrics.items()},
        )


def _check_levels(value: Any) -> None:
    """Raises ValueError if lists and objects are nested too deep to be written again."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        values = (value.values() if isinstance(value, dict) else value for value in level)
        level = [inner for value in values for inner in value if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"the body has more than {_MOST_LEVELS} levels of lists and objects")


def _comparison(compared: Compared) -> NemoComparisonOut:
    outcome = compared.outcome
    judged = outcome if isinstance(outcome, Judgment) else None
    return NemoComparisonOut(
        response_i=compared.pair.a,
        response_j=compared.pair.b,
        judge_idx=0,
        verdict=judged and judged.verdict,
        reason=judged and judged.reason,
        p_bar=judged and judged.preference.p_bar,
        error=outcome.code if isinstance(outcome, ScopeJudgeError) else None,
    )


def _reason(row: Standing, rewards: GroupRewards) -> str | None:
    if row.reason in ("tied", "empty"):
        return "the response is empty" if row.reason == "empty" else "it equals the reference"
    if row.reason is None:
        return None
    outcome = rewards.compared[0].outcome
    if isinstance(outcome, ScopeJudgeError):
        return outcome.detail
    return f"the judge abstained ({outcome.reason})"


def _asked(params: Mapping[str, Any]) -> tuple[Turn, ...]:
    """The conversation of a request to the Responses API."""
    turns = question_turns(params.get("input"))
    instructions = params.get("instructions")
    if instructions is None:
        return turns
    if not isinstance(instructions, str):
        raise ValueError("its instructions are not a text")
    return checked((Turn("system", encodable(instructions)), *turns))


def _response_object(value: Mapping[str, Any]) -> str:
    """The text of an object of the Responses API, without its reasoning."""
    output = value.get("output")
    if not isinstance(output, list):
        raise ValueError("it has no list `output`")
    texts = []
    for item in output:
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        if kind == "reasoning":
            continue
        if kind != "message":
            raise ValueError(
                "its output has an item that is not a message, such as the call of a tool, and a "
                "judge reads only text"
            )
        texts.append(str(response_of({"role": "assistant", **item}, "a message")))
    return encodable("\n".join(texts))
