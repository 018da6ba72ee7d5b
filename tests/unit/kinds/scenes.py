"""Every kind of judge behind a fake server, and what differs by kind.

The settings alone name the judge, as for a user: a new kind is a row of `KINDS`.
"""

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.judges.engines.rendering import load_tokenizer
from app.settings import Settings
from tests.patience import PATIENCE_S, until
from tests.serving import client_of_settings
from tests.unit.judges.engines.decisions_fake import LABEL_MASS, FakeDecisions
from tests.unit.judges.engines.openai_fake import FakeServer, response
from tests.unit.judges.engines.openai_scene import FOLDER

# The fake servers cannot judge a comparison with this word.
UNREADABLE = "unreadable"
# The fake server closes the connection then, and a client must not send another request on it.
_LAST = "Connection: close\r\n"
_TOKENIZER = load_tokenizer(FOLDER)
# The probability of the labels at the other fake servers.
_OTHERS_MASS = math.exp(-0.01)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of judge, and what is different about it.

    Args:
        kind: `kind` of GET /info.
        settings: Settings that name the kind, without SCOPE_.
        make: Makes the server that judges.
        orders: `orders` of an answer.
        label_mass: `label_mass` of an answer.
        requests: Number of requests for one comparison.
        texts_of_group: Number of prompts or conversations for a group of three responses.
        methods: The methods of `evaluate` on this kind.
        distinct: Number of distinct scores among the 100 of the check of the judge.
    """

    kind: str
    settings: Mapping[str, str | int]
    make: Callable[[], FakeServer]
    orders: int
    label_mass: float | None
    requests: int
    texts_of_group: int
    methods: Sequence[str]
    distinct: int = 100

    @property
    def fits_temperature(self) -> bool:
        """Whether a calibration set fits a temperature to the gaps."""
        return self.orders == 1


_WITHOUT_WORDS = ("predictive_probability", "swap_and_aggregate", "bpe")
_MAIN = (
    "predictive_probability",
    "verbalized_confidence",
    "swap_and_aggregate",
    "bpe",
)

KINDS = {
    "labels": Kind(
        kind="chat model",
        settings={"engine": "openai", "tokenizer": FOLDER},
        make=FakeServer,
        orders=2,
        label_mass=_OTHERS_MASS,
        requests=1,
        texts_of_group=6,
        methods=_MAIN,
    ),
    "chat completions": Kind(
        kind="chat model",
        settings={"engine": "openai"},
        make=lambda: FakeServer(vllm=False),
        orders=2,
        label_mass=_OTHERS_MASS,
        requests=2,
        texts_of_group=6,
        methods=_MAIN,
    ),
    "votes": Kind(
        kind="chat model by votes",
        settings={"engine": "openai", "scoring": "votes"},
        make=lambda: FakeServer(vllm=False, no_logprobs=True),
        orders=2,
        label_mass=1.0,
        requests=2,
        texts_of_group=6,
        methods=_WITHOUT_WORDS,
        # Unanimous votes tie.
        distinct=95,
    ),
    "thoughts": Kind(
        kind="chat model that thinks",
        settings={
            "engine": "openai",
            "tokenizer": FOLDER,
            "scoring": "thoughts",
            "think_tokens": 50,
            "think_end": "</think>",
        },
        make=FakeServer,
        orders=2,
        label_mass=_OTHERS_MASS,
        # Each order has a request for its thought, and both have one for their labels.
        requests=3,
        texts_of_group=12,
        methods=_WITHOUT_WORDS,
    ),
    "reward model": Kind(
        kind="reward model",
        settings={"engine": "openai", "openai_scoring": "rewards", "tokenizer": FOLDER},
        make=lambda: FakeServer(rewards=True),
        orders=1,
        label_mass=None,
        requests=1,
        texts_of_group=3,
        methods=("bpe",),
    ),
    "decision server": Kind(
        kind="decision server",
        settings={"engine": "decisions"},
        make=FakeDecisions,
        orders=2,
        label_mass=LABEL_MASS,
        requests=1,
        texts_of_group=6,
        methods=_WITHOUT_WORDS,
    ),
}


@dataclass(kw_only=True)
class Scene:
    """A running server of one kind.

    Args:
        kind: The kind.
        server: The server.
        settings: Settings of a service with this judge.
    """

    kind: Kind
    server: FakeServer
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The settings as environment variables."""
        return {f"SCOPE_{name.upper()}": str(value) for name, value in self.settings.items()}

    def forget(self) -> None:
        """Forgets all requests so far."""
        self.server.asked.clear()

    @property
    def requests(self) -> int:
        """Number of requests with texts since `forget`."""
        return len(self.server.scored)

    @property
    def readable(self) -> list[str]:
        """The texts of each of these requests; token ids are decoded."""
        return [str(_readable(body)) for body in self.server.scored]

    @property
    def texts(self) -> int:
        """Number of prompts or conversations in these requests."""
        return sum(map(_texts_in, self.server.scored))

    @asynccontextmanager
    async def service(self, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
        """A client of a service with this judge; the requests of its start are forgotten."""
        settings = Settings(**{**self.settings, **given})
        async with client_of_settings(settings) as client:
            await until(lambda: "the check of the judge" not in _running())
            self.forget()
            yield client


def _running() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


@contextmanager
def scene_of(kind: Kind) -> Iterator[Scene]:
    """Runs a server of a kind in a thread, for services and for commands with their own loop."""
    server = kind.make()
    server.trouble = lambda path, body: _failing(server, path, body)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE_S)
        fixed = {"model": "the-judge", "openai_urls": server.url, "store_url": "memory://"}
        yield Scene(kind=kind, server=server, settings={**fixed, **kind.settings})
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def pair(number: int, *, bad: bool = False) -> dict[str, Any]:
    """A comparison; the judge cannot judge a bad one."""
    return {
        "question": f"Question {number}?",
        "response_a": f"this is {UNREADABLE}" if bad else f"first answer {number}",
        "response_b": f"second answer {number}",
    }


def _failing(server: FakeServer, path: str, body: dict[str, Any]) -> bytes | None:
    """The answer to a request with an unreadable text; None for another request."""
    if UNREADABLE not in str(_readable(body)):
        return None
    if path != "/completions" or "logprob_token_ids" not in body:
        return response(400, b"{}", headers=_LAST)
    # The prompts of several comparisons share a request, and one of them gets NaN.
    answer: Any = server._answer(path, body)
    for choice in answer["choices"]:
        if UNREADABLE in _TOKENIZER.decode(body["prompt"][choice["index"]]):
            (by_id,) = choice["logprobs"]["top_logprobs"]
            by_id.update(dict.fromkeys(by_id, math.nan))
    return response(200, json.dumps(answer).encode(), headers=_LAST)


def _readable(body: dict[str, Any]) -> object:
    ids = body.get("prompt", body.get("input"))
    if isinstance(ids, list) and ids and isinstance(ids[0], list):
        return [_TOKENIZER.decode(one) for one in ids]
    return body


def _texts_in(body: dict[str, Any]) -> int:
    for several in ("prompt", "questions"):
        if several in body:
            return len(body[several])
    return len(body["input"]) if "use_activation" in body else 1
