"""The caller of a request: name of the key, roles and permitted calibration sets."""

from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from app.core.errors import ForbiddenError

Role = Literal["judge", "calibrate", "label", "admin", "metrics"]
ROLES: tuple[Role, ...] = get_args(Role)


STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Caller(BaseModel):
    """The sender of a request, known by the key.

    Args:
        name: Name of the key; the trail of a calibration set records it.
        roles: Roles of the key.
        calibrations: Names of the calibration sets that the key may use; None for all.
        comparisons_per_minute: Most comparisons a minute on average; None for no limit.
        expires: Time after which the key is refused; None for never.
    """

    model_config = STRICT

    name: str
    roles: list[Role]
    calibrations: list[str] | None = None
    comparisons_per_minute: Annotated[int, Field(ge=1)] | None = None
    expires: AwareDatetime | None = None

    @property
    def only_labels(self) -> bool:
        """Whether the caller may label and nothing else, not even read what any key may."""
        return set(self.roles) == {"label"}

    def check_may_label(self) -> None:
        """Raises ForbiddenError unless the caller may read texts of audits and label them."""
        if "calibrate" not in self.roles and "label" not in self.roles:
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
            permitted = ", ".join(sorted(self.calibrations or ()))
            raise ForbiddenError(
                f"the key {self.name!r} may not use the calibration {calibration!r}: send "
                f"`calibration` with one of {permitted}, or ask the operator"
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
ANYONE = Caller(name="anonymous", roles=list(ROLES))
CALLER_KEY = "scope_judge.caller"
