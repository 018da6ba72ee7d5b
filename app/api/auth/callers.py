"""The caller of a request: name of the key, roles and permitted calibration sets."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from app.core.errors import ForbiddenError

Role = Literal["judge", "calibrate", "label", "admin", "metrics"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, known by the key.

    Args:
        name: Name of the key; the trail of a calibration set records it.
        roles: Roles of the key.
        calibrations: Names of the calibration sets that the key may use; None for all.
        comparisons_per_minute: Most comparisons a minute on average; None for no limit.
        expires: Time after which the key is refused; None for never.
    """

    name: str
    roles: frozenset[Role]
    calibrations: frozenset[str] | None = None
    comparisons_per_minute: int | None = None
    expires: datetime | None = None

    @property
    def only_labels(self) -> bool:
        """Whether the caller may label and nothing else, not even read what any key may."""
        return self.roles == {"label"}

    def check_may_label(self) -> None:
        """Raises ForbiddenError unless the caller may read texts of audits and label them."""
        if self.roles.isdisjoint(("calibrate", "label")):
            raise ForbiddenError(
                f"the key {self.name!r} has neither the role 'label' nor 'calibrate', one of which "
                "this request needs: `scope-judge keys list` shows its roles"
            )

    def may_use(self, calibration: str) -> bool:
        """Whether the caller may use a calibration set."""
        return self.calibrations is None or calibration in self.calibrations

    def check_calibration(self, calibration: str) -> None:
        """Raises ForbiddenError unless the caller may use this calibration set."""
        if not self.may_use(calibration):
            raise ForbiddenError(
                f"the key {self.name!r} may not use the calibration {calibration!r}: "
                "`scope-judge keys list` shows the permitted ones"
            )

    def has_expired(self, now: float) -> bool:
        """Whether the key has expired at a time, in seconds since 1970."""
        return self.expires is not None and now >= self.expires.timestamp()

    def check_not_expired(self, now: float) -> None:
        """Raises ForbiddenError if the key has expired; `now` is in seconds since 1970."""
        if self.expires is not None and self.has_expired(now):
            raise ForbiddenError(
                f"the key {self.name!r} expired at {self.expires:%Y-%m-%d %H:%M %Z}: ask for a new "
                "one (`scope-judge keys add`)"
            )

    def check_all_calibrations(self) -> None:
        """Raises ForbiddenError unless the caller may use every calibration set."""
        if self.calibrations is not None:
            raise ForbiddenError(
                f"the key {self.name!r} is limited to certain calibration sets, and this route "
                f"shows all of them: use a key that was created without --calibration"
            )


# The caller of every request if the service has no key file.
ANYONE = Caller("anonymous", frozenset(ROLES))
CALLER_KEY = "scope_judge.caller"
