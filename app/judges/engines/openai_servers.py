"""Servers of one judge, most of them OpenAI-compatible: requests go to the least busy one."""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from app.judges.engines.turns import Pace, Turns, run_all
from app.ports import ANY_LENGTH, CallTimes
from app.settings import Settings

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Most work in flight on one server. The rest waits in this process, where no timeout runs and calls
# take turns. Two requests of the largest size are several steps of any server, so no server runs
# dry, and a single judgment waits at most 13 s on a server that reads 5,000 tokens a second.
_MOST_TOKENS_IN_FLIGHT = 2**16
# Each request is a connection, and a process may have 1,024 connections.
_MOST_REQUESTS_IN_FLIGHT = 64
# Largest request in tokens, so that it is answered well within its timeout.
_MOST_TOKENS_TOGETHER = 2**15
_MODELS_TIMEOUT_S = 10.0
_LONGEST_RETRY_AFTER_S = 60
# The wording of OpenAI, vLLM and SGLang. The rest of an error's body may quote prompts.
_TOO_LONG = re.compile(r"context_length_exceeded|context length")
# Shorter than the keep-alive of any server (vLLM: 5 s). A request on a connection that the server
# is closing would look like a request to a dead server.
_KEEP_IDLE_CONNECTION_S = 1.0
_CONNECT_TIMEOUT_S = 5.0
# The longest honest answer is a list of models; a gateway with 10,000 of them sends 10 MB.
_LARGEST_ANSWER_BYTES = 16 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """Addresses and key of the servers, which are checked.

    Args:
        settings: The settings of the URLs and of the key, for messages.
        example: A URL that could be one of them, for messages.
    """

    urls: tuple[str, ...]
    api_key: str = field(default="", repr=False)
    timeout_s: float = 120.0
    probe_every_s: float = 2.0
    settings: tuple[str, str] = ("SCOPE_OPENAI_URLS", "SCOPE_OPENAI_API_KEY")
    example: str = "http://host:8000/v1"

    @classmethod
    def of(cls, settings: Settings) -> "Endpoints":
        """The servers of SCOPE_OPENAI_URLS."""
        if settings.revision is not None:
            raise StartupError(
                f"SCOPE_REVISION has no effect with SCOPE_ENGINE={settings.engine}, because the "
                "servers have already loaded a revision: unset it"
            )
        urls = (url.strip().rstrip("/") for url in settings.openai_urls.split(","))
        key = settings.openai_api_key
        return cls(
            urls=tuple(filter(None, urls)),
            api_key=key.get_secret_value().strip() if key else "",
            timeout_s=settings.timeout_s,
        )

    def __post_init__(self) -> None:
        of_urls, of_key = self.settings
        if not self.urls:
            raise StartupError(f"{of_urls} is empty: give the base URL of a server")
        for url in self.urls:
            self._check_url(url)
        if len(set(self.urls)) < len(self.urls):
            raise StartupError(f"{of_urls} names a server twice")
        if not re.fullmatch(r"[!-~]*", self.api_key):
            raise StartupError(f"{of_key} contains characters that a key cannot have")

    def _check_url(self, url: str) -> None:
        of_urls, of_key = self.settings
        try:
            parts, _ = urlsplit(url), httpx.URL(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except (ValueError, httpx.InvalidURL):
            usable, parts = False, urlsplit("")
        # Checked first: the next message quotes the URL, and must not quote a password.
        if "@" in url:
            raise StartupError(f"{of_urls} contains credentials: use {of_key}")
        if not usable or parts.query or parts.fragment:
            raise StartupError(f"{of_urls}: {url!r} is not a URL such as {self.example}")

    def headers(self) -> dict[str, str]:
        """HTTP headers of every request."""
        headers = {"Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})


class ServerFailedError(Exception):
    """A server does not work, or does not serve this judge; another server may. Internal.

    Args:
        reason: Failure as a predicate: the log puts the URL in front of it.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class ServerBusyError(Exception):
    """A server is overloaded. Internal."""

    def __init__(self, *, retry_after_s: int) -> None:
        super().__init__("is busy")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCard:
    """One model in a server's /models, without the fields that a restart changes."""

    id: str
    root: str
    parent: str
    owned_by: str
    max_model_len: int | None

    def context(self, at_most: int | None) -> int:
        """The context in tokens, if it is limited."""
        return min(self.max_model_len or ANY_LENGTH, at_most or ANY_LENGTH)

    @property
    def weights(self) -> str:
        """The identity of the weights: servers do not say whether other files have these names."""
        return "remote " + " ".join(filter(None, (self.id, self.root, self.parent)))


class Server:
    """One server with its load."""

    def __init__(self, url: str, client: httpx.AsyncClient, endpoints: Endpoints) -> None:
        self.url = url
        self.is_up = True
        # Why it was taken out of the pool, the last time.
        self.failure = ""
        self.requests_in_flight = 0
        self.tokens_in_flight = 0
        # Other servers are preferred until this time of the event loop's clock.
        self.busy_until = 0.0
        self._client = client
        self._endpoints = endpoints

    def has_room(self, tokens: int) -> bool:
        """Whether the server may take one more request; an idle server takes one of any size."""
        if self.requests_in_flight == 0:
            return True
        fits = self.tokens_in_flight + tokens <= _MOST_TOKENS_IN_FLIGHT
        return fits and self.requests_in_flight < _MOST_REQUESTS_IN_FLIGHT

    async def post(
        self, path: str, body: dict[str, Any]
    ) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
        """Sends one request; returns the answer, or the error if it concerns this request alone.

        Raises:
            ServerFailedError: There is no answer, or the answer says nothing about this request.
            ServerBusyError: The server is overloaded.
        """
        return _answer(await self.send("POST", path, body=body))

    async def get(self, path: str) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
        """Asks what the server says of itself; see `post`."""
        return _answer(await self.send("GET", path, longest_s=_MODELS_TIMEOUT_S))

    async def card(self, model: str) -> ModelCard:
        """Reads the card of a model from /models; raises as `post`."""
        answer = await self.get("/models")
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

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        longest_s: float = math.inf,
    ) -> "Reply":
        """Sends one request and returns the whole answer; raises as `post`."""
        timeout_s = min(longest_s, self._endpoints.timeout_s)
        # ASCII, because UTF-8 cannot encode half of a surrogate pair: the server refuses the text.
        content = None if body is None else json.dumps(body).encode("ascii")
        try:
            # The timeouts of httpx are for each read: a server that drips would never time out.
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream(method, self.url + path, content=content) as response,
            ):
                reply = await _read(response)
        except (TimeoutError, httpx.TimeoutException) as exc:
            raise ServerFailedError(f"did not answer within {timeout_s:g} s") from exc
        except httpx.DecodingError as exc:
            raise ServerFailedError("answers in a broken encoding") from exc
        except httpx.TransportError as exc:
            raise ServerFailedError(f"cannot be reached ({type(exc).__name__})") from exc
        if reply.status in (429, 503):
            raise ServerBusyError(retry_after_s=reply.retry_after_s)
        if reply.status in (401, 403):
            raise ServerFailedError(f"refuses {self._endpoints.settings[1]}", status=reply.status)
        return reply


class Reply(NamedTuple):
    """A whole answer, decoded but not parsed."""

    status: int
    retry_after: str
    content: bytes

    @property
    def retry_after_s(self) -> int:
        """Seconds that the server asks to wait, at least 1."""
        seconds = int(self.retry_after) if re.fullmatch(r"\d{1,9}", self.retry_after) else 1
        return max(1, min(seconds, _LONGEST_RETRY_AFTER_S))

    @property
    def fields(self) -> dict[str, Any] | None:
        """The JSON object of the answer; None if it has another content."""
        try:
            answer = json.loads(self.content)
        except (ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None


async def _read(response: httpx.Response) -> Reply:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > _LARGEST_ANSWER_BYTES:
            raise ServerFailedError(f"answers with more than {_LARGEST_ANSWER_BYTES >> 20} MiB")
        parts.append(part)
    return Reply(
        status=response.status_code,
        retry_after=response.headers.get("Retry-After", ""),
        content=b"".join(parts),
    )


def _answer(reply: Reply) -> dict[str, Any] | PromptTooLongError | JudgmentFailedError:
    status = reply.status
    if status >= 500 or status in (404, 405):
        raise ServerFailedError(f"answers with status {status}", status=status)
    if status in (400, 413, 422) and _TOO_LONG.search(reply.content.decode(errors="replace")):
        return PromptTooLongError(
            "the prompt does not fit this judge's context; shorten the question or the responses, "
            "or run a judge with a longer context"
        )
    if status != 200:
        return JudgmentFailedError(f"the judge's server refused the request (status {status})")
    answer = reply.fields
    if answer is None:
        return JudgmentFailedError("the judge's server did not answer with a JSON object")
    return answer


class ServerPool:
    """Servers of one model, any of which may answer a request.

    A server that fails is removed from the pool, and its request is tried once on another server. A
    background task probes each server. It puts a server back once the server scores a prompt, and
    takes a server out if the server has another model.
    """

    def __init__(
        self, endpoints: Endpoints, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._endpoints = endpoints
        # A cascade has servers of two settings.
        self._of_urls = endpoints.settings[0]
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._servers: list[Server] = []
        self._probes: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._turns = Turns()
        self._pace = Pace()

    def connect(self) -> None:
        """Makes the HTTP client and the servers; sends nothing."""
        endpoints = self._endpoints
        self._client = httpx.AsyncClient(
            headers=endpoints.headers(),
            transport=self._transport,
            timeout=httpx.Timeout(endpoints.timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=None,
                keepalive_expiry=_KEEP_IDLE_CONNECTION_S,
            ),
        )
        self._servers = [Server(url, self._client, endpoints) for url in endpoints.urls]

    async def open(self, model: str) -> ModelCard:
        """Connects, and reads the model's card from every server.

        Raises:
            StartupError: A server does not serve the model, or its card is not the first server's.
        """
        self.connect()
        cards = await self.on_each(lambda server: server.card(model))
        for server, card in zip(self._servers, cards, strict=True):
            if card != cards[0]:
                raise StartupError(
                    f"{server.url} serves another {model} than {self._servers[0].url}: its root, "
                    "parent or max_model_len differs"
                )
        return cards[0]

    async def on_each(self, work: Callable[[Server], Awaitable[T]]) -> list[T]:
        """Does the same work on every server, one after the other; only for the start."""
        results = []
        for server in self._servers:
            try:
                results.append(await work(server))
            except (ServerFailedError, ServerBusyError) as exc:
                raise StartupError(f"{server.url} {exc}") from exc
        return results

    def start_probes(
        self, rehearse: Callable[[Server], Awaitable[object]], *, card: ModelCard | None = None
    ) -> None:
        """Starts one background task for each server that probes it.

        Args:
            rehearse: Scores a prompt; raises ServerFailedError if the server cannot. A server that
                is out of the pool must pass it to come back.
            card: Card that each server must keep; None if every answer names its model, so that
                servers in the pool need no probes.
        """
        self._probes = [
            asyncio.create_task(self._probe(server, rehearse, card)) for server in self._servers
        ]

    async def _probe(
        self,
        server: Server,
        rehearse: Callable[[Server], Awaitable[object]],
        card: ModelCard | None,
    ) -> None:
        while True:
            await asyncio.sleep(self._endpoints.probe_every_s)
            try:
                if card is not None and await server.card(card.id) != card:
                    raise ServerFailedError("serves another model than at the start")
                if not server.is_up:
                    await rehearse(server)
                    server.is_up = True
                    logger.info("%s: the server %s is back", self._of_urls, server.url)
                    self._wake_waiters()
            except ServerFailedError as exc:
                self._take_out(server, exc)
            except ServerBusyError:
                continue

    async def close(self) -> None:
        """Cancels all requests and probes; safe to call twice."""
        probes, self._probes = self._probes, []
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        self._servers = []
        self._wake_waiters()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def spread(
        self,
        ask: Callable[[Server, Sequence[int]], Awaitable[Sequence[T]]],
        sizes: Sequence[int | None],
        *,
        together: int,
        step: int = 1,
        times: CallTimes,
    ) -> dict[int, T]:
        """Sends the prompts of one call in requests over all servers, each request in its turn.

        Args:
            ask: Sends the prompts at these places of the call, and returns an answer for each; may
                be called twice, as in `run`.
            sizes: Size of each prompt in tokens; None if it is not to be sent.
            together: Most prompts of one request.
            step: Number of neighbors that stay in one request, such as both orders of a pair.
        """
        results: dict[int, T] = {}
        # Even a small batch is spread over all servers.
        share = step * -(-len(sizes) // (step * max(1, len(self._servers))))

        async def send(places: Sequence[int], turn: int) -> None:
            begun = time.perf_counter()

            def work(server: Server) -> Awaitable[Sequence[T]]:
                times.note_wait(time.perf_counter() - begun)
                return ask(server, places)

            tokens = sum(sizes[place] or 0 for place in places)
            answers = await self.run(work, tokens=tokens, turn=turn)
            self._pace.note_done(len(places))
            times.note_answer()
            results.update(zip(places, answers, strict=True))

        with self._pace.call(len(sizes)) as turns:
            await run_all(
                send(places, turns[places[0]])
                for places in parts_of(
                    sizes, most=min(together, share), largest=_MOST_TOKENS_TOGETHER, step=step
                )
            )
        return results

    async def run(self, work: Callable[[Server], Awaitable[T]], *, tokens: int, turn: int) -> T:
        """Does work on the least busy server, and once more on another server if that fails.

        Args:
            turn: Priority among waiting calls: the smallest number is next.

        Raises:
            OverloadedError: Every server in the pool is overloaded.
            EngineUnavailableError: No server is in the pool, or two servers failed in a row.
        """
        first: Server | None = None
        busy: ServerBusyError | None = None
        for _ in range(2):
            server = await self._acquire(tokens, turn, other_than=first)
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
                self._release(server, tokens)
            first = server
        if busy is not None:
            raise OverloadedError(
                "the judge's servers are overloaded", retry_after_s=busy.retry_after_s
            )
        failures = "; ".join(dict.fromkeys(s.failure for s in self._servers if not s.is_up))
        raise EngineUnavailableError(
            "no server of the judge answers" + (f": one {failures}" if failures else ""),
            retry_after_s=max(1, math.ceil(self._endpoints.probe_every_s)),
        )

    async def _acquire(self, tokens: int, turn: int, *, other_than: Server | None) -> Server | None:
        """Waits until a server has room; None if no server is in the pool."""
        loop = asyncio.get_running_loop()
        # The call that has the turn waits for room with the turn held: otherwise small requests
        # would overtake a large one forever.
        async with self._turns.turn(turn):
            while fit := [s for s in self._servers if s.is_up and s is not other_than]:
                server = min(fit, key=lambda s: (s.busy_until > loop.time(), s.tokens_in_flight))
                if server.has_room(tokens):
                    server.requests_in_flight += 1
                    server.tokens_in_flight += tokens
                    return server
                await self._changed.wait()
            return None

    def _release(self, server: Server, tokens: int) -> None:
        server.requests_in_flight -= 1
        server.tokens_in_flight -= tokens
        self._wake_waiters()

    def _take_out(self, server: Server, why: ServerFailedError) -> None:
        # A server that is out may be back as another model, which nobody would see otherwise.
        if server.is_up or server.failure != str(why):
            logger.warning("%s: the server %s is out: it %s", self._of_urls, server.url, why)
        server.is_up, server.failure = False, str(why)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed.clear()


def parts_of(
    sizes: Sequence[int | None], *, most: int, largest: int, step: int = 1
) -> Iterator[list[int]]:
    """Yields the places of the prompts of each request; see `ServerPool.spread`.

    A request has at most `most` prompts, and several together have at most the size `largest`.
    """
    places: list[int] = []
    total = 0
    for start in range(0, len(sizes), step):
        neighbors = {
            start + i: s for i, s in enumerate(sizes[start : start + step]) if s is not None
        }
        size = sum(neighbors.values())
        if places and (len(places) + len(neighbors) > most or total + size > largest):
            yield places
            places, total = [], 0
        places += neighbors
        total += size
    if places:
        yield places
