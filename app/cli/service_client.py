"""The HTTP client with which `judge` and `calibrate` talk to a running service."""

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

# The help of a command needs its options only: functions import httpx.
if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(help="Address of the running service.")]
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
        fingerprint: Fingerprint of the judge.
        patience_s: How long a request is repeated while the service does not answer.
    """

    def __init__(
        self, http: "httpx.Client", *, max_batch: int, fingerprint: str, patience_s: float
    ) -> None:
        self._http = http
        self._patience_s = patience_s
        self.max_batch = max_batch
        self.fingerprint = fingerprint

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts JSON and returns the JSON answer.

        While the service is busy, or is being restarted, the request is repeated.

        Raises:
            typer.Exit: The service does not answer for too long, or answers with an error.
        """
        return self._until_answered(lambda: self._answer(path, body))

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
            answer = self._answer("/judge/batch", body)
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

    def _answer(self, path: str, body: dict[str, Any]) -> "dict[str, Any] | _Delay":
        import httpx

        try:
            # ASCII with NaN allowed: the service reports the invalid values of a line.
            response = self._http.post(
                path,
                content=json.dumps(body, default=str),
                headers={"Content-Type": "application/json"},
            )
        except httpx.TransportError as exc:
            return _Delay(_no_answer_text(self._http.base_url, exc))
        if response.status_code in _BUSY and "judgment_failed" not in response.text:
            pause = response.headers.get("Retry-After", "")
            return _Delay(_refusal_of(response), float(pause) if pause.isdecimal() else 0.0)
        return _json_of(response, self._http.base_url)


class _Delay(NamedTuple):
    """The reason why there is no answer yet, and the pause in seconds that the service asks for."""

    reason: str
    pause_s: float = 0.0


@contextmanager
def connected(url: str, *, patience_s: float = PATIENCE_S) -> Iterator[ServiceClient]:
    """Connects to a service, so that an output file is opened only if the service can be used.

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
            raise _no_answer(url, exc) from None
        if response.status_code == 401:
            raise _key_refused(url)
        max_batch, fingerprint = sys.maxsize, ""
        # If /info has another form, the first POST fails and reports the reason.
        with suppress(ValueError, KeyError, TypeError):
            fingerprint = str(response.json()["fingerprint"])
            max_batch = int(response.json()["limits"]["max_batch"])
        yield ServiceClient(
            http, max_batch=max_batch, fingerprint=fingerprint, patience_s=patience_s
        )


def _json_of(response: "httpx.Response", url: object) -> dict[str, Any]:
    if response.status_code == 401:
        raise _key_refused(url)
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


def _no_answer(url: object, exc: "httpx.HTTPError") -> typer.Exit:
    return failure(_no_answer_text(url, exc))


def _no_answer_text(url: object, exc: "httpx.HTTPError") -> str:
    import httpx

    if isinstance(exc, httpx.UnsupportedProtocol):
        return f"--url {url} needs http:// or https:// before it"
    return (
        f"no answer from {url} ({type(exc).__name__}): start the service with "
        "`scope-judge serve`, or give its address with --url"
    )
