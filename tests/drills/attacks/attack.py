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
    """

    name: str
    what: str
    run: Callable[[Scene], str]
    settings: Mapping[str, str] = field(default_factory=dict)
    cheap: bool = False
    watched: bool = True
