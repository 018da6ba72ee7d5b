"""OpenAI-compatible servers: each request goes to the least busy, and away from one that fails."""

import asyncio
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx

from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    OverloadedError,
    PromptTooLongError,
    StartupError,
)
from app.engines.turns import Turns

logger = logging.getLogger(__name__)
T = TypeVar("T")

# What one server has in hand at most; the rest waits here, where no timeout runs and calls take
# turns. Two of the largest requests are several steps of any server, so none runs dry, and a single
# judgment waits behind no more than 13 s of work for one that reads 5,000 tokens in a second.
_MOST_TOKENS_IN_FLIGHT = 2**16
# Each is a connection, and a process may have 1,024 of them.
_MOST_REQUESTS_IN_FLIGHT = 64
# Shorter than any server keeps an idle connection (vLLM: 5 s): one that is closed just as it is
# used again would look like a server that has died.
_KEEP_IDLE_CONNECTION_S = 1.0
_CONNECT_TIMEOUT_S = 5.0
_MODELS_TIMEOUT_S = 10.0
_LONGEST_RETRY_AFTER_S = 60
# How OpenAI, vLLM and SGLang say it; the rest of an error's body may repeat prompts.
_TOO_LONG = re.compile(r"context_length_exceeded|context length")


class ServerFailedError(Exception):
    """A server does not work, or not as this judge; another may. Never reaches a caller.

    Args:
        reason: What it did, to stand behind its URL.
        status: Of its answer; None where there was none.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class ServerBusyError(Exception):
    """A server has too much to do. Never reaches a caller."""

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__("is busy")
        self.retry_after_s = retry_after_s


class ModelCard(NamedTuple):
    """What a server's /models says of one model; nothing that a restart changes."""

    id: str
    root: str
    parent: str
    owned_by: str
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Access:
    """Where the servers are.

    Args:
        urls: Base URLs, as in http://host:8000/v1.
        api_key: Sent to all of them; empty for none.
        timeout_s: For one request.
        probe_every_s: How often each server is looked at.
    """

    urls: tuple[str, ...]
    api_key: str = field(repr=False)
    timeout_s: float
    probe_every_s: float

    def __post_init__(self) -> None:
        if not self.urls:
            raise StartupError("SCOPE_OPENAI_URLS is empty: give the base URL of a server")
        for url in self.urls:
            _check_url(url)
        if len(set(self.urls)) < len(self.urls):
            raise StartupError("SCOPE_OPENAI_URLS names a server twice")
        if not re.fullmatch(r"[!-~]*", self.api_key):
            raise StartupError("SCOPE_OPENAI_API_KEY holds characters that no key has")

    def headers(self) -> dict[str, str]:
        """Of every request."""
        headers = {"Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})


def _check_url(url: str) -> None:
    try:
        parts, _ = urlsplit(url), httpx.URL(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        usable, parts = False, urlsplit("")
    # Before the URL is ever shown.
    if "@" in url:
        raise StartupError("SCOPE_OPENAI_URLS holds credentials: use SCOPE_OPENAI_API_KEY")
    if not usable or parts.query or parts.fragment:
        raise StartupError(f"SCOPE_OPENAI_URLS: {url!r} is no base URL such as http://host:8000/v1")


class Server:
    """One server, and how busy it is."""

    def __init__(self, url: str, client: httpx.AsyncClient, *, timeout_s: float) -> None:
        self.url = url
        self.is_up = True
        self.requests_in_flight = 0
        self.tokens_in_flight = 0
        # Until then others go first, in time of the event loop.
        self.busy_until = 0.0
        self._client = client
        self._timeout_s = timeout_s

    def has_room(self, tokens: int) -> bool:
        """Whether it may have one more request; one that is alone may be of any size."""
        if self.requests_in_flight == 0:
            return True
        fits = self.tokens_in_flight + tokens <= _MOST_TOKENS_IN_FLIGHT
        return fits and self.requests_in_flight < _MOST_REQUESTS_IN_FLIGHT

    async def post(
        self, path: str, body: dict[str, Any]
    ) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
        """Sends one request.

        Returns:
            The answer, or the error that is this request's alone.

        Raises:
            ServerFailedError: No answer, or one that says nothing of this request.
            ServerBusyError: It has too much to do.
        """
        return _answer(await self._send("POST", path, body=body, timeout_s=self._timeout_s))

    async def card(self, model: str) -> ModelCard:
        """What it says of a model.

        Raises:
            ServerFailedError: It does not answer, or does not serve the model.
            ServerBusyError: It has too much to do.
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
        raise ServerFailedError(f"serves no model {model}: SCOPE_MODEL is its name there")

    async def _send(
        self, method: str, path: str, *, body: dict[str, Any] | None, timeout_s: float
    ) -> httpx.Response:
        # In ASCII: half a surrogate pair inside a text is the server's to refuse.
        content = None if body is None else json.dumps(body).encode("ascii")
        try:
            # httpx has a timeout for each read only: a server that drips would hold it forever.
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
        return JudgmentFailedError("the judge's server answered with something that is no JSON")
    return answer


def _retry_after_s(response: httpx.Response) -> int:
    text = response.headers.get("Retry-After", "")
    given = int(text) if re.fullmatch(r"\d{1,9}", text) else 1
    return max(1, min(given, _LONGEST_RETRY_AFTER_S))


class Servers:
    """Servers of one model, any of which may answer.

    A server that fails is taken out, and its request is tried once on another one. Each is looked
    at in the background: it comes back when it scores again, and goes when it has another model.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client: httpx.AsyncClient | None = None
        self._servers: list[Server] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._turns = Turns()

    def __len__(self) -> int:
        return len(self._servers)

    async def open(self, model: str) -> ModelCard:
        """Connects, and asks all servers for the model.

        Raises:
            StartupError: One does not serve it, or another one than the first.
        """
        access = self._access
        self._client = httpx.AsyncClient(
            headers=access.headers(),
            timeout=httpx.Timeout(access.timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=None,
                keepalive_expiry=_KEEP_IDLE_CONNECTION_S,
            ),
        )
        self._servers = [
            Server(url, self._client, timeout_s=access.timeout_s) for url in access.urls
        ]
        cards = await self.on_each(lambda server: server.card(model))
        for server, card in zip(self._servers, cards, strict=True):
            if card != cards[0]:
                raise StartupError(
                    f"{server.url} serves another {model} than {self._servers[0].url}: its root, "
                    "parent or max_model_len differs"
                )
        return cards[0]

    async def on_each(self, work: Callable[[Server], Awaitable[T]]) -> list[T]:
        """Asks every server the same, while nothing else is asked of them.

        Raises:
            StartupError: One fails.
        """
        found = []
        for server in self._servers:
            try:
                found.append(await work(server))
            except (ServerFailedError, ServerBusyError) as exc:
                raise StartupError(f"{server.url} {exc}") from exc
        return found

    def watch(self, card: ModelCard, rehearse: Callable[[Server], Awaitable[None]]) -> None:
        """Begins to look at the servers.

        Args:
            card: What each must go on saying.
            rehearse: Scores a prompt; raises ServerFailedError where it cannot. A server that was
                out must pass it.
        """
        self._watchers = [
            asyncio.create_task(self._watch(server, card, rehearse)) for server in self._servers
        ]

    async def _watch(
        self, server: Server, card: ModelCard, rehearse: Callable[[Server], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(self._access.probe_every_s)
            try:
                if await server.card(card.id) != card:
                    raise ServerFailedError("serves another model than at the start")
                if not server.is_up:
                    await rehearse(server)
                    server.is_up = True
                    logger.info("The judge's server %s is back", server.url)
                    self._wake()
            except ServerFailedError as exc:
                self._take_out(server, exc)
            except ServerBusyError:
                continue

    async def close(self) -> None:
        """Ends all that is under way; safe to call twice."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        self._servers = []
        self._wake()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def run(self, work: Callable[[Server], Awaitable[T]], *, tokens: int, turn: int) -> T:
        """Does work on the least busy server, and once more on another one if that fails.

        Args:
            work: May be done twice.
            tokens: How much it is.
            turn: Of those that wait for room, the smallest is next.

        Raises:
            OverloadedError: All servers that there are have too much to do.
            EngineUnavailableError: None is there, or two failed one after the other.
        """
        first: Server | None = None
        busy: ServerBusyError | None = None
        for _ in range(2):
            server = await self._take(tokens, turn, other_than=first)
            if server is None:
                break
            try:
                return await work(server)
            except ServerBusyError as exc:
                busy = exc
                server.busy_until = asyncio.get_running_loop().time() + exc.retry_after_s
            except ServerFailedError as exc:
                self._take_out(server, exc)
            finally:
                self._give_back(server, tokens)
            first = server
        if busy is not None:
            raise OverloadedError(
                "the judge's servers have too much to do", retry_after_s=busy.retry_after_s
            )
        raise EngineUnavailableError(
            "no server of the judge answers",
            retry_after_s=max(1, math.ceil(self._access.probe_every_s)),
        )

    async def _take(self, tokens: int, turn: int, *, other_than: Server | None) -> Server | None:
        """The server for the next request, once it has room; None if none is there."""
        loop = asyncio.get_running_loop()
        # Whoever's turn it is waits for room: a large request would wait for ever behind small
        # ones.
        async with self._turns.turn(turn):
            while fit := [s for s in self._servers if s.is_up and s is not other_than]:
                server = min(fit, key=lambda s: (s.busy_until > loop.time(), s.tokens_in_flight))
                if server.has_room(tokens):
                    server.requests_in_flight += 1
                    server.tokens_in_flight += tokens
                    return server
                await self._changed.wait()
            return None

    def _give_back(self, server: Server, tokens: int) -> None:
        server.requests_in_flight -= 1
        server.tokens_in_flight -= tokens
        self._wake()

    def _take_out(self, server: Server, why: ServerFailedError) -> None:
        if server.is_up:
            logger.warning("The judge's server %s is out: it %s", server.url, why)
        server.is_up = False
        self._wake()

    def _wake(self) -> None:
        """All that wait look again."""
        self._changed.set()
        self._changed.clear()


def parse_urls(text: str) -> tuple[str, ...]:
    """Base URLs as SCOPE_OPENAI_URLS has them, comma separated."""
    urls: Sequence[str] = [url.strip().rstrip("/") for url in text.split(",")]
    return tuple(url for url in urls if url)
