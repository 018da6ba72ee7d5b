"""Groups of the traffic, such as the subject of the question, which a comparison can name.

An operator declares the groups, so that a misspelt name is an error and not one more group.
"""

import re
from collections.abc import Collection, Iterable

from app.core.errors import InvalidRequestError

# Names of a service and of a set together. Each group has its own figures and its own alarm.
MOST_GROUPS = 16
GROUP_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# A group with fewer pairs has no separate thresholds. The number does not depend on what labels
# say: a choice that did would break the promise of the group.
FEWEST_OF_GROUP = 100
# Stands for the whole set where an answer names a group.
ALL = "all"
_GROUP = re.compile(GROUP_PATTERN.removesuffix("$") + r"\Z")


def declared_groups(*sources: Iterable[str]) -> tuple[str, ...]:
    """Returns the groups that several sources declare together, sorted.

    Raises:
        ValueError: A name is not valid, or there are too many.
    """
    names = sorted({name for source in sources for name in source})
    for name in names:
        if not _GROUP.match(name):
            raise ValueError(
                "the name of a group is 1 to 64 letters, digits, dots, hyphens and underscores, "
                "and begins with a letter or a digit"
            )
        if name == ALL:
            raise ValueError(f"{ALL!r} stands for the whole set and cannot be a group")
    if len(names) > MOST_GROUPS:
        raise ValueError(f"there are {len(names)} groups, and at most {MOST_GROUPS} are allowed")
    return tuple(names)


def undeclared_group(group: str | None, declared: Collection[str]) -> InvalidRequestError | None:
    """Returns the error of a group that is not declared; None for any other group, or for none."""
    if group is None or group in declared:
        return None
    names = ", ".join(sorted(declared))
    reason = (
        f"the group is not declared; the declared groups are {names}"
        if names
        else "no group is declared: name the groups in SCOPE_GROUPS, or as `groups` in a request "
        "to POST /calibrate"
    )
    return InvalidRequestError(f"group: {reason}", faults=(("group", reason),))
