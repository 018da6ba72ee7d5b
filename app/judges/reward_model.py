"""Scores of a reward model: each response has its own number, and their difference counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from app.core.comparison import Comparison, Turn
from app.core.errors import InvalidComparisonError, JudgmentFailedError
from app.core.fingerprint import JudgeIdentity, digest_of_json
from app.core.preference import Score
from app.judges.scorer import ScoreError, lost
from app.observability.telemetry import Telemetry
from app.ports import CallTimes, Conversation, OnStage, PromptError, RewardModel, no_stage


@dataclass(eq=False)
class RewardModelScorer:
    """A reward model; each response of a call is scored once, whatever its comparisons."""

    model: RewardModel
    telemetry: Telemetry
    identity: JudgeIdentity = field(init=False)

    async def start(self, on_stage: OnStage = no_stage) -> Self:
        """Loads the model; see `RewardModel.start`."""
        self.identity = await self.model.start(on_stage)
        return self

    async def stop(self) -> None:
        await self.model.stop()

    async def lost(self) -> str:
        return await lost(self.model)

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | ScoreError]:
        pairs = [conversations_of(comparison) for comparison in comparisons]
        # A response that meets several others is scored once.
        asked = list(
            dict.fromkeys(
                conversation for pair in pairs if isinstance(pair, tuple) for conversation in pair
            )
        )
        if not asked:
            return [pair for pair in pairs if not isinstance(pair, tuple)]
        times = CallTimes()
        with self.telemetry.calling(
            times,
            comparisons=len(comparisons),
            prompts=len(asked),
        ):
            rewards = await self.model.rewards(asked, times)
        if len(rewards) != len(asked):
            raise JudgmentFailedError(
                f"the reward model returned {len(rewards)} rewards for {len(asked)} responses"
            )
        known = dict(zip(asked, rewards, strict=True))
        return [
            score_of_rewards(known[pair[0]], known[pair[1]]) if isinstance(pair, tuple) else pair
            for pair in pairs
        ]

    def weakness(self, score: Score) -> str | None:
        return None


def reward_identity(
    *,
    judge: str,
    architecture: str,
    weights: str,
    chat_frame: str,
    dtype: str,
    head_dtype: str,
    max_prompt_tokens: int,
    runtime: str | None = None,
    unusual: Mapping[str, object] = MappingProxyType({}),
) -> JudgeIdentity:
    """Returns the identity of a reward model whose rewards are the raw output of its head.

    The arguments are those of `EngineIdentity`; the architecture is the class of the model.
    """
    described = {"model": judge, "dtype": dtype, "head_dtype": head_dtype}
    return JudgeIdentity(
        name=judge,
        inputs={
            **described,
            "kind": "reward model",
            "architecture": architecture,
            "weights": weights,
            "chat_frame": chat_frame,
            "activation": "none",
            **unusual,
        },
        described={
            **described,
            "kind": "reward model",
            "template": digest_of_json([chat_frame]),
        },
        runtime=runtime,
        max_prompt_tokens=max_prompt_tokens,
    )


def conversations_of(
    comparison: Comparison,
) -> tuple[Conversation, Conversation] | InvalidComparisonError:
    """The conversation with response_a and the one with response_b.

    A reward model reads one reply after each turn of the user, so a question with replies of its
    own and several responses has no such conversation.
    """
    question = comparison.question
    if len(comparison.response_a) > 1 and any(turn.role == "assistant" for turn in question):
        return InvalidComparisonError(
            "this judge is a reward model and reads one reply to each turn of the user: question "
            "has turns of the assistant, so give one text as each response"
        )
    return _with(question, comparison.response_a), _with(question, comparison.response_b)


def _with(question: tuple[Turn, ...], response: tuple[str, ...]) -> Conversation:
    """The question with its response: one text at the end, or one after each turn of the user."""
    if len(response) == 1:
        return (*question, Turn("assistant", response[0]))
    replies, turns = iter(response), list[Turn]()
    for turn in question:
        turns.append(turn)
        if turn.role == "user":
            turns.append(Turn("assistant", next(replies)))
    return tuple(turns)


def score_of_rewards(
    reward_a: float | PromptError, reward_b: float | PromptError
) -> Score | ScoreError:
    """The score of a comparison from the rewards of its responses, or the first error."""
    if not isinstance(reward_a, float):
        return reward_a
    if not isinstance(reward_b, float):
        return reward_b
    gap = reward_a - reward_b
    # Two finite rewards may be too far apart for a float, too.
    if not math.isfinite(gap):
        return JudgmentFailedError("the judge's rewards have no finite difference")
    return Score(gap_fwd=gap, gap_rev=None, label_mass=None)
