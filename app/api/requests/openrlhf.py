"""JSON requests of POST /rewards/openrlhf."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from app.api.requests.models import AlphaInUrl, Text
from app.api.requests.rendered import Endings, rendered, response_in_query
from app.api.requests.rewards import RewardOptions, response_text
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.judging.rewarder import Group

T = TypeVar("T")


class RewardQuery(RewardOptions):
    """The options of a reward in the URL, because OpenRLHF's body has none."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: AlphaInUrl = None


class OpenRlhfIn(BaseModel):
    """The body that OpenRLHF sends to `--reward.remote_url`."""

    # A new version may send more fields.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)
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
                question=_read(f"prompts.{i}", rendered, prompt),
                responses=(_read(f"query.{i}", partial(_response, prompt, endings), query),),
                reference=_read(f"labels.{i}", _reference, label),
            )
            for i, (query, prompt, label) in enumerate(
                zip(self.query, self.prompts, self.labels, strict=True)
            )
        ]


def _read(field: str, parse: Callable[[Any], T], value: Any) -> T:
    """The parsed value; raises InvalidRequestError with the field if it cannot be parsed."""
    try:
        return parse(value)
    except (ValueError, InvalidComparisonError) as exc:
        raise InvalidRequestError(f"{field}: {exc}", faults=((field, str(exc)),)) from None


def _reference(label: Any) -> str:
    reference = response_text(label) if label is not None else ""
    if not reference.strip():
        raise ValueError(
            "the sample has no reference response to compare with: name its field with "
            "--data.label_key"
        )
    return reference


def _response(prompt: str, endings: Endings, query: str) -> str:
    response = response_in_query(query, prompt)
    if response is None:
        raise ValueError(
            "it does not begin with its prompt: the prompt was cut (raise the longest prompt), or "
            "the tokenizer does not reproduce it"
        )
    return endings.without(response)
