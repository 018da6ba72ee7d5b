"""JSON of POST /rewards/slime."""

from typing import Any

from pydantic import Field

from app.service.rewards.rewarder import Group, GroupRewards
from app.wire.answers import Out
from app.wire.frameworks.rendered import Endings, rendered
from app.wire.frameworks.samples import FrameworkIn, flags_of, read, reference
from app.wire.requests import Text
from app.wire.rewards import question_turns


class SlimeIn(FrameworkIn):
    """The body that slime sends to `--rm-url`."""

    prompt: Any = Field(description="The rendered prompt, or its messages.")
    response: Text
    label: Any = Field(None, description="The reference response.")

    def group(self, endings: Endings) -> Group:
        """The group; raises InvalidRequestError if the sample cannot be read."""
        turns_of = rendered if isinstance(self.prompt, str) else question_turns
        return Group(
            question=read("prompt", turns_of, self.prompt),
            responses=(endings.without(self.response),),
            reference=reference("label", self.label, "--label-key"),
        )


class SlimeOut(Out):
    """The reward of a sample, for `--reward-key reward`; no reward is 0, with its reason."""

    reward: float
    abstained: int
    tied: int
    failed: int
    empty: int

    @classmethod
    def of(cls, rewards: GroupRewards) -> "SlimeOut":
        """Converts the reward of a sample."""
        return cls(reward=rewards.standings[0].reward or 0.0, **flags_of(rewards.standings[0]))
