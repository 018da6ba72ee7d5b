"""The outcome of one attack, and whether the service held."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import ROOT, running
from tests.drills.attacks.watch import Seen, watching

# The targets of docs/measured/drills.md, "Attacks on the service".
MOST_MEMORY_GROWTH = 0.10
MOST_HEALTHZ_P99_S = 0.25


@dataclass(slots=True)
class Outcome:
    """One attack's figures.

    Args:
        name: Name of the attack.
        figure: The sentence that the attack returned.
        broke: Why the service did not hold, according to the attack; empty if it held.
        seen: Figures of the watch; None if the attack is not watched.
        large_requests: Whether the promise is about the memory after the attack only.
    """

    name: str
    figure: str
    broke: str = ""
    seen: Seen | None = field(default=None)
    large_requests: bool = False

    @property
    def faults(self) -> list[str]:
        """Every broken promise."""
        found = [self.broke] if self.broke else []
        if self.seen is None:
            return found
        most_mib = self.seen.after_mib if self.large_requests else self.seen.peak_mib
        growth = most_mib / self.seen.idle_mib - 1 if self.seen.idle_mib else 0.0
        if growth > MOST_MEMORY_GROWTH:
            found.append(f"memory grew by {growth:.0%}")
        if self.seen.healthz_p99_s > MOST_HEALTHZ_P99_S:
            found.append(f"/healthz took {self.seen.healthz_p99_s:.2f} s at the 99th percentile")
        if self.seen.judge_failed:
            found.append(f"{self.seen.judge_failed} judgments of a key holder failed")
        return found

    def as_json(self) -> dict[str, Any]:
        """The figures for docs/measured/drills.json."""
        seen = None
        if self.seen is not None:
            seen = {name: _rounded(getattr(self.seen, name)) for name in Seen.__slots__}
        return {"figure": self.figure, "broke": self.broke, "seen": seen, "faults": self.faults}


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def carried_out(attack: Attack, *, code: Path = ROOT) -> Outcome:
    """Starts a service for this attack alone, attacks it, and returns the figures."""
    folder = Path(tempfile.mkdtemp(prefix=f"scope-judge-drill-{attack.name}-"))
    outcome = Outcome(attack.name, "", large_requests=attack.large_requests)
    with running(folder, attack.settings, code=code, slow_redis=attack.slow_redis) as scene:
        if attack.prepare is not None:
            attack.prepare(scene)
        try:
            if attack.watched:
                with watching(scene) as seen:
                    outcome.figure = attack.run(scene)
                outcome.seen = seen
            else:
                outcome.figure = attack.run(scene)
        except AssertionError as exc:
            outcome.broke = str(exc) or "an assertion failed"
            if attack.watched:
                outcome.seen = seen
    return outcome
