"""`scope-judge check`: tests a service by judging one group."""

from typing import TYPE_CHECKING

from app.cli.assessment import labeled_and_ties
from app.cli.connection import DEFAULT_URL, Url, connected
from app.cli.console import CommandError, say
from app.cli.running import options

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import Judgment, ScopeClient


def check(
    alpha: options.Alpha = None,
    guarantee: options.Guarantee = None,
    delta: options.Delta = None,
    calibration: options.CalibrationSet = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Check that a service works with this address, key (SCOPE_API_KEY) and criterion.

    Judges one pair, which counts as traffic of the set. It may abstain. Exits with status 1 if the
    service fails, or can accept no comparison.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration})
    with connected(url, patience_s=0) as client:
        found = client.check(**criterion)
        judgment = found.judgment
        say(f"service: {url}, version {found.info.version}")
        say(f"judge: {found.info.judge}")
        if judgment.calibration is not None:
            used = judgment.calibration
            say(f"calibration set: {used.name}, version {used.version}, {_pairs(client, judgment)}")
    pac = "" if judgment.delta is None else f", delta {judgment.delta:g}"
    say(f"criterion: alpha {judgment.alpha:g}, {judgment.guarantee}{pac}")
    say(f"one group of two responses: {judgment.verdict}, in {found.latency_s:.2f} s")
    if found.warning is not None:
        raise CommandError(found.warning)


def _pairs(client: "ScopeClient", judgment: "Judgment") -> str:
    """Says how many pairs the set has, and the share of ties among those that it accepts.

    A key that may only judge sees the number of pairs.
    """
    from scope_judge import ScopeError

    used = judgment.calibration
    assert used is not None, "the judgment has a set"
    try:
        detail = client.calibration(used.name)
    except ScopeError:
        return f"{used.n} pairs"
    same = (row for row in detail.thresholds if row.guarantee == judgment.guarantee)
    row = next((row for row in same if row.alpha == judgment.alpha), None)
    told = labeled_and_ties(detail)
    if row is None or row.delta != judgment.delta or not row.tie_interval:
        return told
    low, high = row.tie_interval
    return f"{told}; {row.tie_share:.1%} of the accepted ones are ties ({low:.1%} to {high:.1%})"
