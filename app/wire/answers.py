"""Answers that are still pydantic models; all others are records."""

from pydantic import BaseModel, ConfigDict

from app.fair_queue import CURRENT_FLOW

RISK_LEVEL = (
    "Smallest alpha that accepts a judgment of this uncertainty. Like alpha, it describes all "
    "judgments that such an alpha accepts. It is not the probability that "
    "this judgment is wrong, and can be small for a pair that differs from the labeled ones."
)


class Out(BaseModel):
    """Base class of all answers."""

    # pydantic would write NaN as null, and null has its own meaning in these answers. Records
    # of core and service become answers by the names of their fields.
    model_config = ConfigDict(allow_inf_nan=False, frozen=True, from_attributes=True)


class RequestUsageOut(Out):
    """The work of the judge for one request; kept scores cost nothing."""

    engine_prompts: int
    prompt_tokens: int

    @classmethod
    def of_request(cls) -> "RequestUsageOut":
        """Converts the usage of the request that is being answered."""
        return cls.model_validate(CURRENT_FLOW.get().usage)
