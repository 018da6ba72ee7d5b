"""JSON of POST /rewards/openrlhf."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import Field

from app.core.errors import InvalidRequestError
from app.service.rewards.rewarder import Group, GroupRewards
from app.wire.answers import Out
from app.wire.frameworks.rendered import Endings, rendered, response_in_query
from app.wire.frameworks.samples import FLAGS, FrameworkIn, flags_of, read, reference
from app.wire.requests import Text


class OpenRlhfIn(FrameworkIn):
    """The body that OpenRLHF sends to `--reward.remote_url`."""

    query: list[Text] = Field(
        description="Rendered prompt and response of each sample, in one text."
    )
    prompts: list[Text] = Field(description="The rendered prompt of each sample.")
    labels: list[Any] = Field(description="The reference response of each sample.")

    def groups(self, endings: Endings) -> list[Group]:
        """One group for each sample; raises InvalidRequestError if a sample cannot be read."""
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise InvalidRequestError("query, prompts and labels must have the same length")
        return [
            Group(
                question=read(f"prompts.{i}", rendered, prompt),
                responses=(read(f"query.{i}", partial(_response, prompt, endings), query),),
                reference=reference(f"labels.{i}", label, "--data.label_key"),
            )
            for i, (query, prompt, label) in enumerate(
                zip(self.query, self.prompts, self.labels, strict=True)
            )
        ]


class OpenRlhfOut(Out):
    """The rewards of the samples; no reward is 0, with a 1 in one of `extra_logs`."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[int]]

    @classmethod
    def of(cls, groups: Sequence[GroupRewards]) -> "OpenRlhfOut":
        """Converts the rewards of samples."""
        rows = [group.standings[0] for group in groups]
        rewards = [row.reward or 0.0 for row in rows]
        flags = [flags_of(row) for row in rows]
        return cls(
            rewards=rewards,
            scores=[(reward + 1.0) / 2.0 for reward in rewards],
            extra_logs={name: [flag[name] for flag in flags] for name in FLAGS},
        )


def _response(prompt: str, endings: Endings, query: str) -> str:
    response = response_in_query(query, prompt)
    if response is None:
        raise ValueError(
            "it does not begin with its prompt: the prompt was cut (raise the longest prompt), or "
            "the tokenizer does not reproduce it"
        )
    return endings.without(response)
