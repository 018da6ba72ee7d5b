"""Builds the records of the service itself: the judge, the limits, and the use of keys."""

from typing import Any

from app import __version__
from app.api.routing import made
from app.core.assessment import advice_on_unanimous
from app.judging.services import Services
from app.observability.telemetry import Telemetry
from app.release import COMMIT
from scope_judge import records

# Pairs from which on the share of unanimous ones leads to advice.
_FEWEST_PAIRS = 50
# Fields with which a kind of judge describes itself; each is None for a kind without it.
_OF_KIND = ("kind", "model", "dtype", "label_tokens", "prefill", "template", "head_dtype")


def info(services: Services, *, caller: str) -> records.Info:
    """Describes a running service to a caller of that name."""
    identity, defaults = services.identity, services.defaults
    described: dict[str, Any] = dict(identity.described)
    server = described.get("decision_server")
    return made(
        records.Info,
        identity,
        **{name: described.get(name) for name in _OF_KIND},
        version=__version__,
        commit=COMMIT,
        judge=identity.name,
        scoring=_scoring(services),
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


def _scoring(services: Services) -> records.Scoring | None:
    described: Any = services.identity.described.get("scoring")
    if described is None:
        return None
    scoring = {**described, "left_out": tuple(described["left_out"])}
    if scoring["kind"] == "votes" and (pairs := services.telemetry.voted_pairs):
        share = services.telemetry.unanimous_pairs / pairs
        # A few pairs say nothing about a share.
        advice = advice_on_unanimous(share) if pairs >= _FEWEST_PAIRS else None
        scoring |= {"unanimous": share, "advice": advice}
    return records.Scoring(**scoring)


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
