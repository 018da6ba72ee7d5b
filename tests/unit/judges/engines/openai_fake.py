"""A fake OpenAI-compatible server: it scores by digest, and misbehaves as a test says."""

import asyncio
import contextlib
import hashlib
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

# Path and body of a request -> bytes to send before the connection is closed, or None for an honest
# answer.
Trouble = Callable[[str, dict[str, Any]], bytes | None]
Change = Callable[[dict[str, Any]], Any]


def scored(content: object) -> tuple[float, float]:
    """Log-probabilities of A and B, computed from a digest of the prompt."""
    digest = hashlib.sha256(json.dumps(content).encode()).digest()
    gap = 8.0 * int.from_bytes(digest[:4], "big") / 2**32 - 4.0
    return -math.log1p(math.exp(-gap)) - 0.01, -math.log1p(math.exp(gap)) - 0.01


def response(status: int, body: bytes, *, headers: str = "", length: int | None = None) -> bytes:
    """An HTTP response; `length` replaces the true Content-Length."""
    shown = len(body) if length is None else length
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {shown}\r\n{headers}\r\n"
    return head.encode() + body


# Tokens of each prompt of a chat, as the fake server counts them.
PROMPT_TOKENS = 7


@dataclass
class FakeServer:
    """One server; a test may change its fields while it runs.

    Args:
        name: Name of the model.
        vllm: Whether it returns log-probabilities by token id, and calls itself vLLM.
        card: Additional fields of the model's card.
        trouble: See `Trouble`; called for every request below /v1.
        change: Changes an honest answer.
        key: API key that requests must have; empty for none.
        refused: Parameters to which it answers 400.
        ignored: Parameters that have no effect.
        no_logprobs: Whether it returns no log-probabilities, and answers with sampled verdicts.
        rewards: Whether it serves a reward model.
        is_silent: Whether it never answers; it waits until the client disconnects.
        port: Port; 0 until it has started.
        asked: Path and body of every request.
        left: Number of silent requests whose client has disconnected.
        headers: Headers of the last request; their names are in lower case.
    """

    name: str = "the-judge"
    vllm: bool = True
    card: dict[str, Any] = field(default_factory=dict)
    trouble: Trouble = lambda path, body: None
    change: Change = lambda answer: answer
    key: str = ""
    rewards: bool = False
    refused: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    no_logprobs: bool = False
    is_silent: bool = False
    port: int = 0
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    left: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    drawn: int = 0
    _server: asyncio.Server | None = None
    _connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def scored(self) -> list[dict[str, Any]]:
        """Bodies of all requests except those to /models."""
        return [body for path, body in self.asked if path != "/models"]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes all connections and refuses new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            open_now = dict(self._connections)
            for writer in open_now:
                writer.transport.abort()
            await asyncio.gather(*open_now.values())
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[writer] = task
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                # A connection may be accepted while the server stops.
                while self._server is not None and await self._answered(reader, writer):
                    pass
        finally:
            writer.transport.abort()
            del self._connections[writer]

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; returns whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {k.lower(): v for k, _, v in (h.partition(": ") for h in head.split("\r\n")[1:])}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        path = head.split(" ")[1].removeprefix("/v1")
        body = json.loads(content) if content else {}
        self.asked.append((path, body))
        self.headers = headers
        if self.is_silent and path != "/models":
            assert await reader.read() == b""
            self.left += 1
            return False
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            writer.write(response(401, b"{}"))
            return True
        cut = self.trouble(path, body)
        if cut is not None:
            writer.write(cut)
            await writer.drain()
            return False
        answer = self._models() if path == "/models" else self._answer(path, body)
        if isinstance(answer, int):
            writer.write(response(answer, b"{}"))
        else:
            changed = answer if path == "/models" else self.change(answer)
            writer.write(response(200, json.dumps(changed).encode()))
        await writer.drain()
        return True

    def _models(self) -> dict[str, Any]:
        own = {"owned_by": "vllm", "max_model_len": 2048} if self.vllm else {"owned_by": "x"}
        card = {"id": self.name, "created": id(self), "root": "org/judge", **own, **self.card}
        return {"data": [{"id": "another"}, card]}

    def _rewards(self, body: dict[str, Any]) -> dict[str, Any] | int:
        if not self.rewards:
            return 404
        rewards = [_reward(ids, raw=not body["use_activation"]) for ids in body["input"]]
        entries = [{"index": i, "probs": [reward]} for i, reward in enumerate(rewards)]
        return {"data": entries[::-1], "usage": {"prompt_tokens": sum(map(len, body["input"]))}}

    def _answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | int:
        """An honest answer, or the status of a refusal."""
        if path == "/classify":
            return self._rewards(body)
        if path == "/completions":
            if not self.vllm:
                return 404
            choices = [self._by_id(ids, body) for ids in body["prompt"]]
        elif any(name in body for name in self.refused):
            return 400
        elif self.no_logprobs:
            choices = self._voted({k: v for k, v in body.items() if k not in self.ignored})
        else:
            choices = [self._chat(body)]
        numbered = [{"index": i, "finish_reason": "stop", **c} for i, c in enumerate(choices)]
        # Reversed, because only the index defines the order.
        prompts = body.get("prompt", [[0] * PROMPT_TOKENS])
        # As OpenAI counts: a prompt with several answers counts once.
        usage = {"prompt_tokens": sum(map(len, prompts)), "completion_tokens": len(choices)}
        return {"choices": numbered[::-1], "usage": usage}

    def _by_id(self, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        text = f"{sum(ids)} {body.get('seed')}"
        if body.get("return_token_ids"):
            # A thought, whose tokens depend on prompt and seed.
            drawn = list(hashlib.sha256(text.encode()).digest()[:3])
            return {"text": text, "token_ids": drawn, "stop_reason": body["stop"][0]}
        if "logprob_token_ids" not in body:
            return {"text": text}
        by_id = body["return_tokens_as_token_ids"]
        keys = [f"token_id:{i}" for i in body["logprob_token_ids"]] if by_id else ["A", "B"]
        found = dict(zip(keys, scored(ids), strict=True))
        return {"text": text, "logprobs": {"top_logprobs": [{"token_id:9": -0.1, **found}]}}

    def _voted(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Verdicts drawn by seed, or random letters if the prompt asks for them."""
        messages, texts = body["messages"], []
        share = math.exp(scored(messages)[0])
        for i in range(body.get("n", 1)):
            self.drawn += 1
            seed = body["seed"] + i if "seed" in body else -self.drawn
            digest = hashlib.sha256(json.dumps([messages, seed]).encode()).hexdigest()
            verdict = "[[A]]" if int(digest[:8], 16) / 2**32 < share else "[[B]]"
            texts.append(digest if "random letters" in messages[-1]["content"] else verdict)
        return [{"message": {"content": text}} for text in texts]

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        a, b = scored(body["messages"])
        # Two different tokens are spelled "A"; " A" is another label.
        entries = [("A", a - math.log(2)), ("A", a - math.log(2)), ("B", b), (" A", -9.0)]
        top = [{"token": token, "logprob": value} for token, value in entries]
        logprobs = {"content": [{"token": "A", "top_logprobs": top}]}
        content = f"{len(body['messages'])} {body.get('seed')}"
        return {"message": {"content": content}, "logprobs": logprobs}


def reward_of(ids: list[int]) -> float:
    """The reward that fake servers give a conversation, which a sigmoid makes 1."""
    return 100.0 + scored(ids)[0]


def _reward(ids: list[int], *, raw: bool) -> float:
    reward = reward_of(ids)
    return reward if raw else 1.0 / (1.0 + math.exp(-reward))


@asynccontextmanager
async def serving(*servers: FakeServer) -> AsyncIterator[None]:
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.stop()
