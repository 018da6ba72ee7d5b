"""The base class of answers in the formats of other products; all others are records."""

from pydantic import BaseModel, ConfigDict


class Out(BaseModel):
    """Base class of all answers."""

    # pydantic would write NaN as null, and null has its own meaning in these answers. Records
    # of core and service become answers by the names of their fields.
    model_config = ConfigDict(allow_inf_nan=False, frozen=True, from_attributes=True)
