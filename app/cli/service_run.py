"""One run of the service in a terminal: its settings, its start, and the reason why it ended."""

import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TextIO, cast

import typer

from app.api.access import is_loopback
from app.api.application import create_application
from app.api.keys import Keys, open_keys
from app.api.server import DrainingServer, bound
from app.cli.console import CommandError, console, print_error, say
from app.cli.progress import ConsoleObserver
from app.cli.stopping import end_now
from app.core.calibration import Calibration
from app.core.errors import ScopeJudgeError, StartupError
from app.core.fingerprint import JudgeIdentity
from app.judging.services import Services
from app.main import serving
from app.observability.logs import LogStream, finish, start_log
from app.ports import ANY_LENGTH
from app.sets.cache import DEFAULT_CALIBRATION
from app.settings import Settings, read_settings
from app.wiring.startup import LoggingObserver, StartupObserver


def run_service(*, host: str | None, port: int | None) -> None:
    """Runs the service until a signal ends it."""
    settings = _prepared({"host": host, "port": port})
    # Lines for people would not be JSON.
    as_json = settings.log_format == "json"
    observer = LoggingObserver() if as_json else ConsoleObserver()
    keys = open_keys(settings.api_keys_file, observer.warning)
    settings = _reachable(settings, keys, observer)
    try:
        run = _Run(settings, observer, keys)
        with ExitStack() as stack:
            run.until_stopped([stack.enter_context(each) for each in _listeners(settings)])
    except StartupError as exc:
        raise _failure(exc.detail, as_json=as_json) from None
    if run.refused is not None:
        raise _failure(run.refused.detail, as_json=as_json)
    # Engine or store can never answer again.
    if run.server.lost is not None:
        print_end = _log_error if as_json else print_error
        print_end(f"{run.server.lost}; the service has stopped: start it again")
        finish()
        # The interpreter must not end in order. It would close a SQLite file that was replaced, and
        # SQLite would write its log into that file.
        os._exit(1)


def _failure(message: str, *, as_json: bool) -> Exception:
    """The exception that ends the command with a line for people, or with one of the log."""
    if not as_json:
        return CommandError(message)
    _log_error(message)
    return typer.Exit(1)


def _log_error(message: str) -> None:
    logging.getLogger("app").error("%s", message)


class _Run:
    """One run of the service, from loading the judge to the last answer."""

    def __init__(
        self, settings: Settings, observer: ConsoleObserver | LoggingObserver, keys: Keys | None
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._with_key = keys is not None
        self._services: Services | None = None
        # The reason why the service did not start, if it did not.
        self.refused: ScopeJudgeError | None = None
        application = create_application(settings, self._opened, keys=keys)
        self.server = DrainingServer(application, settings, self._on_listening, end_now)

    def until_stopped(self, listeners: list[socket.socket]) -> None:
        """Serves until a signal arrives, engine or store are lost, or the start fails."""
        # `serve` prints the reason why a start failed; uvicorn would add a traceback.
        logging.getLogger("uvicorn.error").addFilter(lambda record: self.refused is None)
        try:
            self.server.run(sockets=listeners)
        except SystemExit:
            # Uvicorn exits by itself if the start failed.
            if self.refused is None:
                raise

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Services]:
        try:
            opening = serving(self._settings, self._observer, on_lost=self.server.end)
            async with opening as services:
                self._services = services
                yield services
        except ScopeJudgeError as exc:
            self.refused = exc
            raise

    def _on_listening(self, port: int) -> None:
        assert self._services is not None
        url = _url_of(self._settings.host, port)
        if isinstance(self._observer, LoggingObserver):
            judge = self._services.identity
            self._observer.note(f"ready at {url}, judge {judge.name} ({judge.fingerprint[:12]})")
            return
        _print_ready(self._services, self._observer, url, with_key=self._with_key)


def _prepared(given: dict[str, Any]) -> Settings:
    """Reads the settings with the command line's on top, and sends all output through the log."""
    settings = read_settings(**{k: v for k, v in given.items() if v is not None})
    log = start_log(settings.log_level, settings.log_format)
    # A stream that somebody has replaced, as a test does, stays.
    if sys.stderr is sys.__stderr__:
        console.file = cast(TextIO, LogStream(log))
    return settings


def _reachable(settings: Settings, keys: Keys | None, observer: StartupObserver) -> Settings:
    """The settings; without keys, their host is replaced by 127.0.0.1."""
    if keys is not None:
        return settings
    if is_loopback(settings.host):
        observer.note("No keys are set: only this machine can reach the service.")
        return settings
    observer.warning(
        f"the service listens on 127.0.0.1, not on {settings.host} as --host or SCOPE_HOST says: "
        "without keys, anybody who can reach the service can do everything. Create a key with "
        "`scope-judge keys add NAME --role judge --file keys.json` and set "
        "SCOPE_API_KEYS_FILE=keys.json"
    )
    return settings.model_copy(update={"host": "127.0.0.1"})


def _listeners(settings: Settings) -> Iterator[socket.socket]:
    """Binds the port of the service, then that of the metrics if there is one."""
    yield bound(settings.host, settings.port, setting="SCOPE_PORT")
    if settings.metrics_port is not None:
        yield bound(settings.host, settings.metrics_port, setting="SCOPE_METRICS_PORT")


def _url_of(host: str, port: int) -> str:
    """The URL at which this machine reaches the service."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def _print_ready(
    services: Services, observer: ConsoleObserver, url: str, *, with_key: bool
) -> None:
    """Prints the screen."""
    judge, limits = services.identity, services.limits
    say("")
    say(
        ("ready", "bold green"),
        f" after {observer.elapsed_s:.1f} s at ",
        (url, "bold"),
        "   judge ",
        (judge.name, "bold"),
        f" ({judge.fingerprint[:12]})",
        # A server may not say how long its prompts may be.
        f", reads {limits.max_prompt_tokens} tokens"
        if limits.max_prompt_tokens < ANY_LENGTH / 2
        else "",
    )
    known = services.calibrations.known()
    for calibration in known:
        if calibration.fingerprint != judge.fingerprint:
            say(
                ("warning:", "yellow"),
                f" calibration {calibration.name!r} was made with another judge "
                f"({calibration.judge}) and is refused: use another store or name, or DELETE it, "
                "and calibrate this judge.",
            )
            continue
        say(f"calibration {calibration.name}, version {calibration.version}, {calibration.n} pairs")
    if not _default_accepts(services):
        reason = (
            f"The calibration 'default' accepts nothing at alpha {services.defaults.alpha:g}"
            if any(_is_default(calibration, judge) for calibration in known)
            else "There is no calibration 'default' of this judge"
        )
        say(
            f"{reason}: POST labeled pairs to /calibrate, or name another set. "
            '"alpha": null below asks for a judgment without a guarantee.',
        )
    say("The desk, a page to try, label and recalibrate: ", (f"{url}/desk", "bold"))
    example = _example(services, url, with_key=with_key)
    say("Try it:")
    # Whole, on any terminal: people copy it.
    console.print(f"  {example}", markup=False, soft_wrap=True)


def _is_default(calibration: Calibration, judge: JudgeIdentity) -> bool:
    return (calibration.name, calibration.fingerprint) == (DEFAULT_CALIBRATION, judge.fingerprint)


def _default_accepts(services: Services) -> bool:
    """Whether a request without alpha and calibration can get a verdict."""
    defaults = services.defaults
    return any(
        calibration.row(defaults.alpha, defaults.guarantee, defaults.delta).feasible
        for calibration in services.calibrations.known()
        if _is_default(calibration, services.identity)
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
