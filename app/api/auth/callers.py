"""Who asks: a key's name, what it may do, and with which calibration sets."""

from dataclasses import dataclass
from typing import Literal, get_args

from app.core.errors import ForbiddenError

Role = Literal["judge", "calibrate", "admin", "metrics"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request.

    Args:
        name: Of the key; it stands in the audit trail.
        roles: What it may do.
        calibrations: The sets it may touch; None for all.
    """

    name: str
    roles: frozenset[Role]
    calibrations: frozenset[str] | None = None

    def may_use(self, calibration: str) -> bool:
        """Whether it may touch a set."""
        return self.calibrations is None or calibration in self.calibrations

    def check_calibration(self, calibration: str) -> None:
        """Raises ForbiddenError unless the caller may touch this set."""
        if not self.may_use(calibration):
            raise ForbiddenError(
                f"the key {self.name!r} may not touch calibration {calibration!r}: "
                "`scope-judge keys list` shows which it may"
            )

    def check_all_calibrations(self) -> None:
        """Raises ForbiddenError unless the caller may touch every set."""
        if self.calibrations is not None:
            raise ForbiddenError(
                f"the key {self.name!r} is limited to some calibration sets, and this shows all: "
                "make a key for it without --calibration"
            )


# Where there is no file of keys, whoever reaches the port is this one.
ANYONE = Caller("anonymous", frozenset(ROLES))
CALLER_KEY = "scope_judge.caller"
