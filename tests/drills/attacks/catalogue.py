"""Every attack by name: the `ATTACKS` of each file in `kinds/`."""

import importlib
import pkgutil

from tests.drills.attacks import kinds
from tests.drills.attacks.attack import Attack


def _all() -> dict[str, Attack]:
    found: dict[str, Attack] = {}
    for module in sorted(pkgutil.iter_modules(kinds.__path__), key=lambda each: each.name):
        if module.name.startswith("test_"):
            continue
        for attack in importlib.import_module(f"{kinds.__name__}.{module.name}").ATTACKS:
            if attack.name in found:
                raise ValueError(f"two attacks are named {attack.name}")
            found[attack.name] = attack
    return found


ATTACKS = _all()
