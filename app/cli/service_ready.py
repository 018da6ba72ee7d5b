"""The screen of a service that is ready: its address, its thresholds, and a command to try."""

import json
import sys

from app.cli.console import ConsoleObserver, console, print_thresholds
from app.core.calibration import Calibration
from app.service.calibration.cache import DEFAULT_CALIBRATION
from app.service.judging.judge import Judge
from app.service.services import Services


def url_of(host: str, port: int) -> str:
    """The URL at which this machine reaches the service."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def print_ready(services: Services, observer: ConsoleObserver, url: str, *, with_key: bool) -> None:
    """Prints the screen.

    Args:
        services: The open services.
        observer: Knows the time since the start.
        url: The URL at which this machine reaches the service.
        with_key: Whether a request needs a key.
    """
    judge, limits = services.judge, services.limits
    console.print(
        f"\n[bold green]ready[/] after {observer.elapsed_s:.1f} s at [bold]{url}[/]   "
        f"judge [bold]{judge.name}[/] ({judge.fingerprint[:12]}), "
        f"reads {limits.max_prompt_tokens} tokens",
        highlight=False,
    )
    known = services.calibrations.known()
    for calibration in known:
        if calibration.fingerprint != judge.fingerprint:
            console.print(
                f"[yellow]warning:[/] calibration {calibration.name!r} was made with another judge "
                f"({calibration.judge}) and is refused: use another store or name, or DELETE it, "
                "and calibrate this judge."
            )
            continue
        rows = [{**row._asdict(), "feasible": row.feasible} for row in calibration.standard_rows]
        print_thresholds(calibration.name, calibration.version, calibration.n, rows)
    if not _default_accepts(services):
        reason = (
            f"The calibration 'default' accepts nothing at alpha {services.defaults.alpha:g}"
            if any(_is_default(each, judge) for each in known)
            else "There is no calibration 'default' of this judge"
        )
        console.print(
            f"{reason}: POST labelled pairs to /calibrate, or name another set. "
            '"alpha": null below asks for a judgment that promises nothing.',
            highlight=False,
        )
    print(f"Try it:\n  {_example(services, url, with_key=with_key)}", file=sys.stderr, flush=True)


def _is_default(calibration: Calibration, judge: Judge) -> bool:
    return (calibration.name, calibration.fingerprint) == (DEFAULT_CALIBRATION, judge.fingerprint)


def _default_accepts(services: Services) -> bool:
    """Whether a request without alpha and calibration can get a verdict."""
    alpha, guarantee, delta = services.defaults
    return any(
        calibration.row(alpha, guarantee, delta).feasible
        for calibration in services.calibrations.known()
        if _is_default(calibration, services.judge)
    )


def _example(services: Services, url: str, *, with_key: bool) -> str:
    """A command that asks for a judgment and gets one."""
    body = {
        "question": "Sort these numbers from small to large: 7, 2, 9",
        "response_a": "2, 7, 9",
        "response_b": "7, 2, 9",
    }
    asked = json.dumps(body if _default_accepts(services) else {**body, "alpha": None})
    key = ' -H "Authorization: Bearer $SCOPE_API_KEY"' if with_key else ""
    return f"curl {url}/judge -H 'Content-Type: application/json'{key} -d '{asked}'"
