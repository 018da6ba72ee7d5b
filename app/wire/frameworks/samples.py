"""The parts that the frameworks' requests and answers have in common."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict

from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.service.rewards.tournament import NoReward, Standing
from app.wire.requests import AlphaInUrl
from app.wire.rewards import RewardOptions, response_text

T = TypeVar("T")
REASONS: tuple[NoReward, ...] = get_args(NoReward)
# A response that is compared with a reference has an opponent.
FLAGS = tuple(reason for reason in REASONS if reason != "unopposed")


class RewardQuery(RewardOptions):
    """The options of a reward in the URL, because the frameworks' own bodies have none."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: AlphaInUrl = None


class FrameworkIn(BaseModel):
    """Base class of the bodies that frameworks send."""

    # A new version of a framework may send more fields.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


def flags_of(row: Standing) -> dict[str, int]:
    """The reason of a missing reward as numbers, which is all that the frameworks log."""
    return {name: int(row.reason == name) for name in FLAGS}


def read(field: str, parse: Callable[[Any], T], value: Any) -> T:
    """The parsed value; raises InvalidRequestError with the field if it cannot be parsed."""
    try:
        return parse(value)
    except (ValueError, InvalidComparisonError) as exc:
        raise InvalidRequestError(f"{field}: {exc}", faults=((field, str(exc)),)) from None


def reference(field: str, label: Any, option: str) -> str:
    """The text of a reference response; raises InvalidRequestError if there is none.

    Args:
        field: Name of the field.
        label: Its value.
        option: Option of the framework that names the column of the references.
    """

    def text(value: Any) -> str:
        response = response_text(value) if value is not None else ""
        if not response.strip():
            raise ValueError(
                "the sample has no reference response to compare with: name its field with "
                + option
            )
        return response

    return read(field, text, label)
