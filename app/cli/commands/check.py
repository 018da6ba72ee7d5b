"""`scope-judge check`: tests a service by judging one group."""

from app.cli.console import CommandError, say
from app.cli.running.options import (
    Alpha,
    CalibrationSet,
    Delta,
    Guarantee,
    given_criterion,
)
from app.cli.service_client import DEFAULT_URL, Url, checked_service


def check(
    alpha: Alpha = None,
    guarantee: Guarantee = None,
    delta: Delta = None,
    calibration: CalibrationSet = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Check that a service works with this address, key (SCOPE_API_KEY) and criterion.

    Judges one pair, which counts as traffic of the set. Exits with status 1 if the service fails,
    or accepts no comparison.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    found = checked_service(url, given_criterion({**given, "calibration": calibration}))
    judgment = found.judgment
    say(f"service: {url}, version {found.info.version}")
    say(f"judge: {found.info.judge}")
    if judgment.calibration is not None:
        used = judgment.calibration
        say(f"calibration set: {used.name}, version {used.version}, {used.n} labeled pairs")
    pac = "" if judgment.delta is None else f", delta {judgment.delta:g}"
    say(f"criterion: alpha {judgment.alpha:g}, {judgment.guarantee}{pac}")
    say(f"one group of two responses: {judgment.verdict}, in {found.latency_s:.2f} s")
    if found.warning is not None:
        raise CommandError(found.warning)
