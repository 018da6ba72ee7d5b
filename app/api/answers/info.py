"""Builds the records of the service itself: the judge, the limits, and the use of keys."""

from typing import Any

from app import __version__
from app.api.answers.making import made
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.release import COMMIT
from scope_judge import records

# Fields with which a kind of judge describes itself; each is None for a kind without it.
_OF_KIND = ("kind", "model", "dtype", "label_tokens", "prefill", "template", "head_dtype")


def info(services: Services, *, caller: str) -> records.Info:
    """Describes a running service to a caller of that name."""
    identity, defaults = services.identity, services.defaults
    described: dict[str, Any] = dict(identity.described)
    server, scoring = described.get("decision_server"), described.get("scoring")
    return made(
        records.Info,
        identity,
        **{name: described.get(name) for name in _OF_KIND},
        version=__version__,
        commit=COMMIT,
        judge=identity.name,
        scoring=scoring and records.Scoring(**{**scoring, "left_out": tuple(scoring["left_out"])}),
        decision_server=server
        and records.DecisionServer(**{**server, "hosts": tuple(server["hosts"])}),
        rungs=tuple(records.JudgeOfCascade(**rung) for rung in described.get("rungs") or ())
        or None,
        default_alpha=defaults.alpha,
        default_guarantee=defaults.guarantee,
        default_delta=defaults.delta,
        min_label_mass=services.calibrations.min_label_mass,
        on_alarm=services.monitor.on_alarm,
        audit_rate=services.auditor.rate,
        limits=services.limits,
        caller=caller,
    )


def usage_of(telemetry: Telemetry, *, only: str | None) -> records.Usage:
    """The use of all keys, or of `only` one."""
    used = telemetry.uses()
    return records.Usage(
        since=telemetry.since.isoformat().replace("+00:00", "Z"),
        keys=tuple(
            records.KeyUsage(key=key, **used[key])
            for key in (sorted(used) if only is None else [only])
        ),
    )
