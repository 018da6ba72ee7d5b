"""JSON of POST /rewards/openrlhf."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import Field

from app.core.errors import InvalidRequestError
from app.service.rewards.rewarder import Group, GroupRewards
from app.wire.answers import Out
from app.wire.frameworks.rendered import rendered, response_in_query, without_end
from app.wire.frameworks.samples import FLAGS, FrameworkIn, flags_of, read, reference
from app.wire.requests import Text


class OpenRlhfIn(FrameworkIn):
    """The body that OpenRLHF sends to `--reward.remote_url`."""

    query: list[Text] = Field(description="Each sample: rendered prompt and response in one text.")
    prompts: list[Text] = Field(description="The rendered prompt of each sample.")
    labels: list[Any] = Field(description="The reference response of each sample.")

    def groups(self, end_markers: Sequence[str]) -> list[Group]:
        """One group for each sample; raises InvalidRequestError if a sample cannot be read."""
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise InvalidRequestError("query, prompts and labels must have the same length")
        return [
            Group(
                read(f"prompts.{i}", rendered, prompt),
                (read(f"query.{i}", partial(_response, prompt, end_markers), query),),
                reference(f"labels.{i}", label, "--data.label_key"),
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
    def of(cls, found: Sequence[GroupRewards]) -> "OpenRlhfOut":
        """Converts the rewards of samples."""
        rows = [each.standings[0] for each in found]
        rewards = [row.reward or 0.0 for row in rows]
        flags = [flags_of(row) for row in rows]
        return cls(
            rewards=rewards,
            scores=[(reward + 1.0) / 2.0 for reward in rewards],
            extra_logs={name: [each[name] for each in flags] for name in FLAGS},
        )


def _response(prompt: str, end_markers: Sequence[str], query: str) -> str:
    found = response_in_query(query, prompt)
    if found is None:
        raise ValueError(
            "it does not begin with its prompt: the prompt was cut (raise the longest prompt), or "
            "the tokenizer does not reproduce it"
        )
    return without_end(found, end_markers)
