"""An attack: a name, a sentence for the table, and a function that carries it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.drills.attacks.scene import Scene


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack on a running service.

    Args:
        name: The value of `--only`.
        what: The attacker's action, for the table.
        run: Runs the attack, ends by itself, and returns a sentence with the attack's own figure;
            raises AssertionError if the service did not hold. Most attacks take less than half a
            minute.
        settings: SCOPE_* variables of the service that is attacked.
        cheap: Whether `make test` runs the attack, too.
        watched: Whether the promises on memory, /healthz and a key holder's /judge are checked
            meanwhile; False if the attack itself stops or restarts the service.
        slow_redis: Whether the store is a Redis that takes 50 ms for each answer.
        prepare: Called before the watch begins, for what the service has before the attack; None if
            there is nothing.
        large_requests: Whether the requests themselves need more memory than the promise allows, so
            that it is about the memory after the attack.
    """

    name: str
    what: str
    run: Callable[[Scene], str]
    settings: Mapping[str, str] = field(default_factory=dict)
    cheap: bool = False
    watched: bool = True
    slow_redis: bool = False
    prepare: Callable[[Scene], None] | None = None
    large_requests: bool = False
