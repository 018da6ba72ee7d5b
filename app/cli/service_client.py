"""The HTTP client with which the commands talk to a running service."""

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from rich.markup import escape

from app.cli.console import console, failure
from app.wire.headers import AGE_HEADER

# The help of a command needs its options only: functions import httpx.
if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
_URL_VARIABLE = "SCOPE_URL"
Url = Annotated[str, typer.Option(envvar=_URL_VARIABLE, help="Address of the running service.")]
PATIENCE_S = 600.0
Patience = Annotated[
    float,
    typer.Option(min=0, help="Seconds for which a request is repeated without an answer."),
]

T = TypeVar("T")

# Read from the environment only: every user of the machine can see the options of a process.
_KEY_VARIABLE = "SCOPE_API_KEY"
_TIMEOUT_S = 600.0
# Between two tries of a request, if the service names no pause.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_BUSY = (408, 429, 502, 503, 504)


class ServiceClient:
    """A connection to a service that has answered and accepted the key.

    Args:
        http: Client with the address and the key of the service.
        max_batch: Largest number of comparisons that the service accepts in one request.
        max_body_bytes: Largest request body that the service accepts.
        judge_name: Name of the judge.
        fingerprint: Fingerprint of the judge.
        patience_s: How long a request is repeated while the service does not answer.
    """

    def __init__(
        self,
        http: "httpx.Client",
        *,
        max_batch: int,
        max_body_bytes: int,
        judge_name: str,
        fingerprint: str,
        patience_s: float,
    ) -> None:
        self._http = http
        self._patience_s = patience_s
        self.max_batch = max_batch
        self.max_body_bytes = max_body_bytes
        self.judge_name = judge_name
        self.fingerprint = fingerprint

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts JSON and returns the JSON answer.

        While the service is busy, or is being restarted, the request is repeated.

        Raises:
            typer.Exit: The service does not answer for too long, or answers with an error.
        """
        return self._until_answered(lambda: self._answer("POST", path, body))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Returns the JSON answer to a GET, as `post` does.

        Raises:
            typer.Exit: The service does not answer for too long, or answers with an error.
        """
        return self._until_answered(lambda: self._answer("GET", path, query=query))

    def change_once(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Sends a change that must not be repeated, because another change may follow it.

        Raises:
            typer.Exit: The service does not answer, or answers with an error.
        """
        found = self._answer(method, path, body)
        if isinstance(found, _Delay):
            raise failure(f"{found.reason}; look whether the change was made before you repeat it")
        return found

    def judge(
        self, comparisons: list[Any], criterion: Mapping[str, Any], passing: Collection[str]
    ) -> list[dict[str, Any]]:
        """Judges comparisons in one request, and again those with a passing error.

        Args:
            comparisons: Bodies of the comparisons, as in POST /judge/batch.
            criterion: Fields of the whole batch.
            passing: Codes of errors after which the same comparison may get a judgment.

        Returns:
            For each comparison, in order, a judgment or an error that does not pass.

        Raises:
            typer.Exit: The service does not answer for too long, or answers with an error.
        """
        found: dict[int, dict[str, Any]] = {}

        def ask() -> list[dict[str, Any]] | _Delay:
            places = [i for i in range(len(comparisons)) if i not in found]
            body = {**criterion, "comparisons": [comparisons[i] for i in places]}
            answer = self._answer("POST", "/judge/batch", body)
            if isinstance(answer, _Delay):
                return answer
            error = None
            for i, result in zip(places, answer["results"], strict=True):
                if result.get("error", {}).get("code") in passing:
                    error = result["error"]
                else:
                    found[i] = result
            if error is not None:
                return _Delay(f"{error['code']}: {error['detail']}")
            return [found[i] for i in range(len(comparisons))]

        return self._until_answered(ask)

    def _until_answered(self, ask: Callable[[], "T | _Delay"]) -> T:
        """Asks until there is an answer, or the patience is over."""
        until, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while isinstance(found := ask(), _Delay):
            pause_s = max(pause_s, found.pause_s)
            if time.monotonic() + pause_s > until:
                raise failure(found.reason)
            console.print(
                f"[dim]waiting for the service:[/] {escape(found.reason)}", highlight=False
            )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return found

    def _answer(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> "dict[str, Any] | _Delay":
        import httpx

        try:
            response = self._http.request(
                method,
                path,
                params=query or None,
                content=None if body is None else written(body),
                headers={} if body is None else {"Content-Type": "application/json"},
            )
        except httpx.TransportError as exc:
            return _Delay(_no_answer_text(self._http.base_url, exc))
        if response.status_code in _BUSY and "judgment_failed" not in response.text:
            pause = response.headers.get("Retry-After", "")
            return _Delay(_refusal_of(response), float(pause) if pause.isdecimal() else 0.0)
        if AGE_HEADER in response.headers:
            # A file is read later, when nobody looks at the age of its thresholds.
            return _Delay("the calibration store does not confirm the thresholds")
        return _json_of(response, self._http.base_url)


def written(body: Mapping[str, Any]) -> str:
    """A body as it is sent: ASCII, with NaN allowed, because the service reports invalid values."""
    return json.dumps(body, default=str, separators=(",", ":"))


class _Delay(NamedTuple):
    """The reason why there is no answer yet, and the pause in seconds that the service asks for."""

    reason: str
    pause_s: float = 0.0


def is_given(url: str) -> bool:
    """Whether an address was given on the command line."""
    return url not in (DEFAULT_URL, os.environ.get(_URL_VARIABLE))


@contextmanager
def connected(
    url: str, *, patience_s: float = PATIENCE_S, otherwise: str = ""
) -> Iterator[ServiceClient]:
    """Connects to a service, so that an output file is opened only if the service can be used.

    Args:
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.
        otherwise: Another way, for the message, if there is no service.

    Raises:
        typer.Exit: The service does not answer, or it refuses the key.
    """
    import httpx

    try:
        http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=_key_header())
    except httpx.InvalidURL as exc:
        raise failure(f"--url {url} is no address: {exc}") from None
    with http:
        try:
            response = http.get("/info")
        except httpx.HTTPError as exc:
            raise failure(_no_answer_text(url, exc) + otherwise) from None
        if response.status_code == 401:
            raise _key_refused(url)
        # If /info has another form, the first request fails and reports the reason.
        info: dict[str, Any] = {}
        with suppress(ValueError, TypeError):
            info = {**response.json()}
        limits = info.get("limits", {})
        yield ServiceClient(
            http,
            max_batch=limits.get("max_batch", sys.maxsize),
            max_body_bytes=limits.get("max_body_bytes", sys.maxsize),
            judge_name=info.get("judge", ""),
            fingerprint=info.get("fingerprint", ""),
            patience_s=patience_s,
        )


def _json_of(response: "httpx.Response", url: object) -> dict[str, Any]:
    if response.status_code == 401:
        raise _key_refused(url)
    if response.status_code == 204:
        return {}
    try:
        answer: dict[str, Any] = response.json()
    except ValueError:
        raise failure(
            f"{url} answered with status {response.status_code} and without JSON: check that "
            "--url is the address of a scope-judge service"
        ) from None
    if response.is_error:
        raise failure(f"{answer.get('code', response.status_code)}: {answer.get('detail', '')}")
    return answer


def _key_header() -> dict[str, str]:
    key = os.environ.get(_KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable():
        raise failure(
            f"{_KEY_VARIABLE} contains characters that a key cannot have: copy the key again"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def _key_refused(url: object) -> typer.Exit:
    if os.environ.get(_KEY_VARIABLE, "").strip():
        return failure(f"unauthenticated: {url} does not know the key in {_KEY_VARIABLE}")
    return failure(
        f"unauthenticated: {url} requires a key: put your key into {_KEY_VARIABLE}. "
        "The operator of the service makes keys with `scope-judge keys add`"
    )


def _refusal_of(response: "httpx.Response") -> str:
    with suppress(ValueError, KeyError, TypeError):
        answer = response.json()
        return f"{answer['code']}: {answer['detail']}"
    return f"status {response.status_code}"


def _no_answer_text(url: object, exc: "httpx.HTTPError") -> str:
    import httpx

    if isinstance(exc, httpx.UnsupportedProtocol):
        return f"--url {url} needs http:// or https:// before it"
    return (
        f"no answer from {url} ({type(exc).__name__}): start the service with "
        "`scope-judge serve`, or give its address with --url"
    )
