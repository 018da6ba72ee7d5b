"""One OpenAI-compatible server: its requests, its load, and the errors that its answers mean."""

import asyncio
import json
import re
from typing import Any, NamedTuple

import httpx

from app.core.errors import JudgmentFailedError, PromptTooLongError

# Most work in flight on one server. The rest waits in this process, where no timeout runs and calls
# take turns. Two requests of the largest size are several steps of any server, so no server runs
# dry, and a single judgment waits at most 13 s on a server that reads 5,000 tokens a second.
_MOST_TOKENS_IN_FLIGHT = 2**16
# Each request is a connection, and a process may have 1,024 connections.
_MOST_REQUESTS_IN_FLIGHT = 64
_MODELS_TIMEOUT_S = 10.0
_LONGEST_RETRY_AFTER_S = 60
# The wording of OpenAI, vLLM and SGLang. The rest of an error's body may quote prompts.
_TOO_LONG = re.compile(r"context_length_exceeded|context length")


class ServerFailedError(Exception):
    """A server does not work, or does not serve this judge; another server may. Internal.

    Args:
        reason: Failure as a predicate: the log puts the URL in front of it.
        status: HTTP status of the answer; None without an answer.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class ServerBusyError(Exception):
    """A server is overloaded. Internal.

    Args:
        retry_after_s: Pause that the server asks for, in seconds, at least 1.
    """

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__("is busy")
        self.retry_after_s = retry_after_s


class ModelCard(NamedTuple):
    """One model in a server's /models, without the fields that a restart changes."""

    id: str
    root: str
    parent: str
    owned_by: str
    max_model_len: int | None


class Server:
    """One server with its load.

    Args:
        url: Base URL, as in http://host:8000/v1.
        client: HTTP client shared by all servers.
        timeout_s: Timeout of one request.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, *, timeout_s: float) -> None:
        self.url = url
        self.is_up = True
        self.requests_in_flight = 0
        self.tokens_in_flight = 0
        # Other servers are preferred until this time of the event loop's clock.
        self.busy_until = 0.0
        self._client = client
        self._timeout_s = timeout_s

    def has_room(self, tokens: int) -> bool:
        """Whether the server may take one more request; an idle server takes one of any size."""
        if self.requests_in_flight == 0:
            return True
        fits = self.tokens_in_flight + tokens <= _MOST_TOKENS_IN_FLIGHT
        return fits and self.requests_in_flight < _MOST_REQUESTS_IN_FLIGHT

    async def post(
        self, path: str, body: dict[str, Any]
    ) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
        """Sends one request.

        Returns:
            The answer, or the error if it concerns this request alone.

        Raises:
            ServerFailedError: There is no answer, or the answer says nothing about this request.
            ServerBusyError: The server is overloaded.
        """
        return _answer(await self._send("POST", path, body=body, timeout_s=self._timeout_s))

    async def card(self, model: str) -> ModelCard:
        """Reads the card of a model from /models.

        Raises:
            ServerFailedError: The server does not answer, or does not serve the model.
            ServerBusyError: The server is overloaded.
        """
        timeout_s = min(self._timeout_s, _MODELS_TIMEOUT_S)
        answer = _answer(await self._send("GET", "/models", body=None, timeout_s=timeout_s))
        cards = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(cards, list):
            raise ServerFailedError("does not say which models it serves")
        for card in cards:
            if isinstance(card, dict) and card.get("id") == model:
                length = card.get("max_model_len")
                return ModelCard(
                    id=model,
                    root=str(card.get("root") or ""),
                    parent=str(card.get("parent") or ""),
                    owned_by=str(card.get("owned_by") or ""),
                    max_model_len=length if isinstance(length, int) and length > 0 else None,
                )
        raise ServerFailedError(
            f"serves no model {model}: set SCOPE_MODEL to the name that the server uses"
        )

    async def _send(
        self, method: str, path: str, *, body: dict[str, Any] | None, timeout_s: float
    ) -> httpx.Response:
        # ASCII, because UTF-8 cannot encode half of a surrogate pair: the server refuses the text.
        content = None if body is None else json.dumps(body).encode("ascii")
        try:
            # The timeouts of httpx are for each read: a server that drips would never time out.
            async with asyncio.timeout(timeout_s):
                return await self._client.request(method, self.url + path, content=content)
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise ServerFailedError(f"did not answer within {timeout_s:g} s") from exc
        except httpx.DecodingError as exc:
            raise ServerFailedError("answers in a broken encoding") from exc
        except httpx.TransportError as exc:
            raise ServerFailedError(f"cannot be reached ({type(exc).__name__})") from exc


def _answer(
    response: httpx.Response,
) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
    status = response.status_code
    if status in (429, 503):
        raise ServerBusyError(retry_after_s=_retry_after_s(response))
    if status in (401, 403):
        raise ServerFailedError("refuses SCOPE_OPENAI_API_KEY", status=status)
    if status >= 500 or status in (404, 405):
        raise ServerFailedError(f"answers with status {status}", status=status)
    if status in (400, 413, 422) and _TOO_LONG.search(response.text):
        return PromptTooLongError(
            "the prompt does not fit this judge's context; shorten the question or the responses, "
            "or run a judge with a longer context"
        )
    if status != 200:
        return JudgmentFailedError(f"the judge's server refused the request (status {status})")
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return JudgmentFailedError("the judge's server did not answer with a JSON object")
    return answer


def _retry_after_s(response: httpx.Response) -> int:
    text = response.headers.get("Retry-After", "")
    given = int(text) if re.fullmatch(r"\d{1,9}", text) else 1
    return max(1, min(given, _LONGEST_RETRY_AFTER_S))
