"""The HTTP client with which `judge` and `calibrate` talk to a running service."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import httpx
import typer

from app.cli.console import failure

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option(help="Address of the running service.")]

# Read from the environment only: every user of the machine can see the options of a process.
_KEY_VARIABLE = "SCOPE_API_KEY"
_TRIES = 6
_TIMEOUT_S = 600.0


class ServiceClient:
    """A connection to a service that has answered and accepted the key.

    Args:
        http: Client with the address and the key of the service.
        max_batch: Largest number of comparisons that the service accepts in one request.
    """

    def __init__(self, http: httpx.Client, *, max_batch: int) -> None:
        self._http = http
        self.max_batch = max_batch

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts JSON and returns the JSON answer; retries while the service is busy.

        A busy service names the pause in its Retry-After header.

        Raises:
            typer.Exit: The service does not answer, or answers with an error.
        """
        for attempt in range(_TRIES):
            try:
                # ASCII with NaN allowed: the service reports the invalid values of a line.
                response = self._http.post(
                    path, content=json.dumps(body), headers={"Content-Type": "application/json"}
                )
            except httpx.HTTPError as exc:
                raise _no_answer(self._http.base_url, exc) from None
            if response.status_code not in (429, 503) or attempt == _TRIES - 1:
                break
            time.sleep(float(response.headers.get("Retry-After", 1)))
        return _json_of(response, self._http.base_url)


@contextmanager
def connected(url: str) -> Iterator[ServiceClient]:
    """Connects to a service, so that an output file is opened only if the service can be used.

    Raises:
        typer.Exit: The service does not answer, or it refuses the key.
    """
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
        max_batch = sys.maxsize
        # If /info has another form, the first POST fails and reports the reason.
        with suppress(ValueError, KeyError, TypeError):
            max_batch = int(response.json()["limits"]["max_batch"])
        yield ServiceClient(http, max_batch=max_batch)


def _json_of(response: httpx.Response, url: object) -> dict[str, Any]:
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


def _no_answer(url: object, exc: httpx.HTTPError) -> typer.Exit:
    if isinstance(exc, httpx.UnsupportedProtocol):
        return failure(f"--url {url} needs http:// or https:// before it")
    return failure(
        f"no answer from {url} ({type(exc).__name__}): start the service with "
        "`scope-judge serve`, or give its address with --url"
    )
