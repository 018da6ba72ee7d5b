"""Requests, answers and repetitions without I/O.

The steps of a call are a generator. It yields a `Call`, which a client answers with httpx's
response or error, or a `Pause`, which a client waits for; it returns the result or raises a
ScopeError. So the synchronous and the asynchronous client share everything but the waiting.
"""

import json
import logging
import math
import os
import random
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import httpx

from scope_judge.errors import AnswerError, ScopeError, TooSlowError, UnavailableError, class_of

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8000"
URL_VARIABLE = "SCOPE_URL"
KEY_VARIABLE = "SCOPE_API_KEY"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the service and its key.

    Args:
        url: URL of the service, without a user and a password.
        key: The key; None to send none. No repr shows it.
    """

    url: str
    key: str | None = field(repr=False)

    @classmethod
    def of(
        cls, url: str | None, api_key: str | None, environment: Mapping[str, str] = os.environ
    ) -> "Address":
        """The address from the arguments, or else from SCOPE_URL and SCOPE_API_KEY.

        A password in the URL (`http://x:KEY@host`) is the key, unless another one is given.
        """
        given = url or environment.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        parts = urlsplit(given)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host or not _has_sound_port(parts):
            shown = host + parts.path if parts.netloc else given.rpartition("@")[2]
            raise ValueError(
                f"{shown!r} is not the address of a service: write it with http:// or https://, "
                f"such as {DEFAULT_URL}"
            )
        if api_key is None:
            api_key = unquote(parts.password or "") or environment.get(KEY_VARIABLE, "")
        return cls(urlunsplit((parts.scheme, host, parts.path, "", "")), _key(api_key.strip()))


def _has_sound_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _key(text: str) -> str | None:
    if not text.isascii() or not text.isprintable():
        # Not `from` anything, and without the text: it may be most of a real key.
        raise ValueError(
            "the key contains characters that a key cannot have: copy the key again into "
            f"{KEY_VARIABLE} or api_key"
        )
    return text or None


class Call(NamedTuple):
    """A request.

    Args:
        content: JSON; None for no body.
        idempotent: Whether a request that may have arrived can be sent again.
        patient: Whether a 504 is tried again, too. A sender that makes smaller requests of it says
            no.
    """

    method: str
    path: str
    content: bytes | None = None
    idempotent: bool = True
    patient: bool = False


class Pause(NamedTuple):
    """A pause before the next try, with the reason."""

    seconds: float
    reason: str


class OneGroup(NamedTuple):
    """Responses whose rewards an asynchronous client may ask for together with others."""

    group: Any
    rule: Mapping[str, Any]


Step = Call | Pause | OneGroup
# A response or an error; the rewards of a group; None after the others.
Answer = Any
Steps = Generator[Step, Answer, T]


OnWait = Callable[[Pause], None]
logger = logging.getLogger("scope_judge")


def log_wait(pause: Pause) -> None:
    """Logs a pause; without a configuration of logging, the line appears on stderr."""
    logger.warning("waiting %.1f s for the service: %s", pause.seconds, pause.reason)


@dataclass(frozen=True, slots=True)
class Timing:
    """Clocks and chance, which tests replace."""

    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random


# Longer than the service's own timeout, which ends in a clearer error.
TIMEOUT_S = 600.0
_CONNECT_TIMEOUT_S = 10.0
DEFAULT_PATIENCE_S = 600.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_BUSY, _AWAY, _LATE = 429, 503, 504
# Nothing was sent.
_UNCONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)
# The form of each code of the service; any other text was not written by it.
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST_DETAIL = 2000
# The client's own timeout passed.
_TIMEOUTS = (httpx.ReadTimeout, httpx.WriteTimeout)
# Sent by the service while its store does not answer.
_AGE_HEADER = "scope-calibration-age"


@dataclass(slots=True)
class Session:
    """State that the requests of a client share."""

    address: Address
    timing: Timing = field(default_factory=Timing)
    # None: DEFAULT_PATIENCE_S, but 0 s while no service has answered, as at a wrong address.
    patience_s: float | None = None
    reached: bool = False
    confirmed_only: bool = False

    def exchange(self, call: Call, waits: "Waits | None" = None) -> Steps[Any]:
        """Sends a request until it is answered, and returns the JSON of the answer.

        Only a 429, a 503, a timeout or a broken connection is tried again; a 503, a timeout, or a
        connection that broke after a request was sent, only if the request is idempotent.
        """
        waits = waits or Waits(self)
        while True:
            answer = yield call
            outcome = self._read(answer)
            if not isinstance(outcome, ScopeError):
                return outcome
            may_be_done = isinstance(answer, httpx.RequestError) or outcome.status == _AWAY
            may_be_done = may_be_done or (outcome.status == _LATE and call.patient)
            again = outcome.status == _BUSY or isinstance(answer, _UNCONNECTED)
            again = again or (may_be_done and call.idempotent)
            pause = waits.pause_after(outcome) if again else None
            if pause is None:
                raise outcome
            yield pause

    def _read(self, answer: Answer) -> Any:
        """The JSON of an answer, or the error that it means."""
        if isinstance(answer, httpx.Response):
            content = _json_of(answer)
            # A proxy's own 503 does not show that there is a service behind it.
            self.reached = self.reached or content is not _NOTHING
            return self._content_or_error(answer, content)
        text = f"{type(answer).__name__}: {answer}".rstrip(": ")
        if isinstance(answer, _TIMEOUTS):
            return TooSlowError(
                f"{self.address.url} did not answer in time ({text}): send smaller batches, "
                "or give the client a longer timeout_s",
                code="timeout",
            )
        return UnavailableError(
            f"no answer from {self.address.url} ({text}): start the service with "
            f"`scope-judge serve`, or give its address as url (on a command line as --url) or in "
            f"{URL_VARIABLE}",
            code="no_connection",
        )

    def _content_or_error(self, response: httpx.Response, content: Any) -> Any:
        if response.status_code == 204:
            return None
        if response.is_success and self.confirmed_only and _AGE_HEADER in response.headers:
            return UnavailableError(
                "the calibration store does not confirm the thresholds",
                code="thresholds_not_confirmed",
                status=503,
            )
        if response.is_success:
            return self._unexpected(response) if content is _NOTHING else content
        if not response.is_error:
            return self._unexpected(response)
        problem = content if isinstance(content, dict) else {}
        code, detail = problem.get("code"), problem.get("detail")
        if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(detail, str):
            # 404, 405 and the like come from any web server; the others also from proxies.
            if response.status_code in (400, 404, 405):
                return self._unexpected(response)
            code, detail = f"status_{response.status_code}", f"{self.address.url} gave no reason"
        if response.status_code == 401:
            detail = self._key_refused()
        return class_of(response.status_code, code)(
            detail[:_LONGEST_DETAIL],
            code=code,
            status=response.status_code,
            retry_after_s=_retry_after_s(response.headers),
        )

    def _unexpected(self, response: httpx.Response) -> AnswerError:
        what = f"with status {response.status_code} and without JSON of scope-judge"
        target = response.headers.get("location")
        if 300 <= response.status_code < 400 and target:
            what = f"with a redirect to {target.partition('?')[0][:_LONGEST_DETAIL]}"
        return self._unfitting(what, response.status_code)

    def _unfitting(self, what: str, status: int | None) -> AnswerError:
        return AnswerError(
            f"{self.address.url} answered {what}: check that url (or {URL_VARIABLE}) is the "
            "address of a scope-judge service",
            code="unexpected_answer",
            status=status,
        )

    def _key_refused(self) -> str:
        if self.address.key is None:
            return (
                f"{self.address.url} requires a key: give it as api_key or in {KEY_VARIABLE}. The "
                "operator of the service makes keys with `scope-judge keys add`"
            )
        return f"{self.address.url} does not know the key: check api_key or {KEY_VARIABLE}"


class Waits:
    """The pauses of one request: exponential, with full jitter, until the patience is over."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._begun = session.timing.monotonic()
        self._longest_s = _FIRST_PAUSE_S

    def pause_after(self, error: ScopeError) -> Pause | None:
        """The pause before the next try; None if the patience would be over."""
        seconds = (error.retry_after_s or 0.0) + self._longest_s * self._session.timing.random()
        self._longest_s = min(2 * self._longest_s, _LONGEST_PAUSE_S)
        spent_s = self._session.timing.monotonic() - self._begun
        if spent_s + seconds > self._patience_s():
            return None
        return Pause(seconds, str(error))

    def _patience_s(self) -> float:
        if self._session.patience_s is not None:
            return self._session.patience_s
        return DEFAULT_PATIENCE_S if self._session.reached else 0.0


_NOTHING = object()


def _json_of(response: httpx.Response) -> Any:
    """The JSON of an answer; _NOTHING if it is not JSON, or has numbers that JSON does not have."""
    try:
        return json.loads(response.content, parse_constant=_not_json, parse_float=_finite)
    except (ValueError, RecursionError):
        return _NOTHING


def _not_json(word: str) -> float:
    """Refuses NaN and Infinity, which Python's reader takes for numbers."""
    raise ValueError(word)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds of Retry-After; a date, which the service never sends, counts as none."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isdecimal() else None


def client_options(address: Address, timeout_s: float) -> dict[str, Any]:
    """The options of a client of httpx."""
    from scope_judge import __version__

    headers = {
        "User-Agent": f"scope-judge-client/{__version__}",
        # The service does not compress.
        "Accept-Encoding": "identity",
    }
    if address.key is not None:
        headers["Authorization"] = f"Bearer {address.key}"
    return {
        "base_url": address.url,
        "headers": headers,
        # Waiting for a free connection of the pool is the client's own matter.
        "timeout": httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
    }


def request_of(call: Call) -> dict[str, Any]:
    """The arguments of a request of httpx."""
    headers = {} if call.content is None else {"Content-Type": "application/json"}
    return {"method": call.method, "url": call.path, "content": call.content, "headers": headers}
