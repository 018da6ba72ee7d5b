"""A reward model behind vLLM's servers: /classify or /pooling, asked for the head's raw output."""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.comparison import Turn
from app.core.errors import (
    EngineUnavailableError,
    JudgmentFailedError,
    RequestError,
    StartupError,
)
from app.judges.engines.conversations import PROBE, ConversationRenderer, chat_frame_of
from app.judges.engines.openai_servers import Endpoints, Server, ServerFailedError, ServerPool
from app.judges.engines.rendering import load_tokenizer
from app.judges.engines.turns import Pace, run_all
from app.ports import (
    CallTimes,
    Conversation,
    OnStage,
    PromptError,
    RewardModelIdentity,
    no_stage,
)

# vLLM has both routes beside /v1. Route -> field of an entry of the answer that has the reward.
_ROUTES = {"/../classify": "probs", "/../pooling": "data"}
_NO_SUCH_ROUTE = (404, 405, 501)
# Conversations of one request, and their tokens, so that it is answered well within its timeout.
_TOGETHER = 32
_MOST_TOKENS = 2**15
# The context if neither the server nor the user limits it.
_ANY_LENGTH = 2**31
# Its reward differs from that of the probe on every model.
_OTHER_PROBE: Conversation = (PROBE[0], Turn("assistant", "Bananas are yellow."))


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenAiRewardOptions:
    """Options of a reward model on servers.

    Args:
        endpoints: The servers; all serve the same model.
        model: The model's name at the servers.
        judge: The judge's name in answers.
        tokenizer: Hugging Face id or folder of the model's tokenizer.
        max_model_len: Context in tokens, if it is to be shorter than the servers'.
    """

    endpoints: Endpoints
    model: str
    judge: str
    tokenizer: str
    max_model_len: int | None = None


class OpenAiRewardModel:
    """A reward model on remote servers; requests fail over if there are several.

    Args:
        options: Servers and model.
    """

    def __init__(self, options: OpenAiRewardOptions) -> None:
        self._options = options
        self._servers = ServerPool(options.endpoints)
        self._pace = Pace()
        # Set by start.
        self._renderer: ConversationRenderer | None = None
        self._route: str

    async def start(self, on_stage: OnStage = no_stage) -> RewardModelIdentity:
        options = self._options
        card = await self._servers.open(options.model)
        context = min(card.max_model_len or _ANY_LENGTH, options.max_model_len or _ANY_LENGTH)
        try:
            tokenizer = await asyncio.to_thread(load_tokenizer, options.tokenizer)
        except StartupError as exc:
            raise StartupError(
                f"{exc.detail} (set SCOPE_TOKENIZER to the Hugging Face id or folder of the served "
                "model's tokenizer)"
            ) from exc
        chat_frame = chat_frame_of(tokenizer)
        renderer = ConversationRenderer(tokenizer, max_prompt_tokens=context)
        probes: list[list[int]] = []
        for ids in renderer.token_ids([PROBE, _OTHER_PROBE]):
            if isinstance(ids, RequestError):
                raise StartupError(f"the judge cannot judge at all: {ids.detail}") from ids
            probes.append(ids)
        routes = await self._servers.on_each(lambda server: self._route_of(server, probes))
        if len(set(routes)) > 1:
            raise StartupError("the servers of SCOPE_OPENAI_URLS have different routes for rewards")
        self._route = routes[0]

        async def rehearse(server: Server) -> None:
            _check_probes(await self._asked(server, probes))

        await self._servers.on_each(rehearse)
        self._servers.start_probes(rehearse, card=card)
        self._renderer = renderer
        return RewardModelIdentity(
            judge=options.judge,
            architecture="remote",
            weights="remote " + " ".join(filter(None, (card.id, card.root, card.parent))),
            chat_frame=chat_frame,
            activation="none",
            dtype="remote",
            head_dtype="remote",
            max_prompt_tokens=context,
        )

    async def stop(self) -> None:
        self._renderer = None
        await self._servers.close()

    async def rewards(
        self, conversations: Sequence[Conversation], times: CallTimes | None = None
    ) -> list[float | PromptError]:
        renderer, times = self._renderer, times or CallTimes()
        if renderer is None:
            raise EngineUnavailableError("the judge is not running")
        with times.rendering():
            rendered = await asyncio.to_thread(renderer.token_ids, conversations)
        results: dict[int, float | PromptError] = {
            i: ids for i, ids in enumerate(rendered) if isinstance(ids, RequestError)
        }
        asked = {i: ids for i, ids in enumerate(rendered) if not isinstance(ids, RequestError)}
        times.prompt_tokens += sum(map(len, asked.values()))
        share = -(-len(asked) // max(1, len(self._servers)))
        with self._pace.call(len(conversations)) as turns:
            await run_all(
                self._run({i: asked[i] for i in places}, turns[places[0]], times, results)
                for places in _requests(asked, min(_TOGETHER, share))
            )
        return [results[i] for i in range(len(conversations))]

    async def _run(
        self,
        prompts: dict[int, list[int]],
        turn: int,
        times: CallTimes,
        results: dict[int, float | PromptError],
    ) -> None:
        """Sends one request, and notes its rewards."""
        begun = time.perf_counter()

        async def ask(server: Server) -> list[float | PromptError]:
            times.note_wait(time.perf_counter() - begun)
            together = await self._asked(server, list(prompts.values()))
            if isinstance(together, list):
                return together
            if len(prompts) == 1:
                return [together]
            # One conversation that the server refuses must not fail the others.
            alone = [await self._asked(server, [ids]) for ids in prompts.values()]
            return [answer[0] if isinstance(answer, list) else answer for answer in alone]

        tokens = sum(map(len, prompts.values()))
        rewards = await self._servers.run(ask, tokens=tokens, turn=turn)
        self._pace.note_done(len(prompts))
        times.note_answer()
        results.update(zip(prompts, rewards, strict=True))

    async def _route_of(self, server: Server, probes: Sequence[list[int]]) -> str:
        """The route of a server that answers; raises ServerFailedError if it has none."""
        for route in _ROUTES:
            self._route = route
            try:
                await self._asked(server, probes)
            except ServerFailedError as exc:
                # Only these statuses mean that the route is missing.
                if exc.status not in _NO_SUCH_ROUTE:
                    raise
                continue
            return route
        raise ServerFailedError("serves no reward model: it has neither /classify nor /pooling")

    async def _asked(
        self, server: Server, prompts: Sequence[list[int]]
    ) -> list[float | PromptError] | PromptError:
        """The rewards of some conversations, or the error of the whole request."""
        body: dict[str, Any] = {
            "model": self._options.model,
            "input": list(prompts),
            # Otherwise the server would put a sigmoid over the reward.
            "use_activation": False,
        }
        if self._route == "/../pooling":
            body["task"] = "classify"
        answer = await server.post(self._route, body)
        if isinstance(answer, PromptError):
            return answer
        return _rewards_in(answer, len(prompts), _ROUTES[self._route])


def _requests(asked: dict[int, list[int]], most: int) -> Iterator[list[int]]:
    """Yields the places of the conversations of each request."""
    places: list[int] = []
    tokens = 0
    for i, ids in asked.items():
        if places and (len(places) >= most or tokens + len(ids) > _MOST_TOKENS):
            yield places
            places, tokens = [], 0
        places.append(i)
        tokens += len(ids)
    if places:
        yield places


def _rewards_in(
    answer: dict[str, Any], count: int, field: str
) -> list[float | PromptError] | JudgmentFailedError:
    """Reads the rewards of an answer in the order of the request."""
    try:
        entries = sorted(answer["data"], key=lambda entry: entry["index"])
        if [entry["index"] for entry in entries] != list(range(count)):
            return JudgmentFailedError("the judge's server answered about other conversations")
        return [_reward_in(entry[field]) for entry in entries]
    except (KeyError, TypeError):
        return JudgmentFailedError("the judge's server answered without rewards")


def _reward_in(values: Any) -> float | PromptError:
    if not isinstance(values, list) or len(values) != 1:
        return JudgmentFailedError("the judge's server answered with several numbers, or with none")
    (value,) = values
    if isinstance(value, bool) or not isinstance(value, int | float):
        return JudgmentFailedError("the judge's server answered with a reward that is not a number")
    try:
        reward = float(value)
    except OverflowError:
        return JudgmentFailedError("the judge's server answered with a reward that is too large")
    if not math.isfinite(reward):
        return JudgmentFailedError("the judge's server answered with a reward that is not finite")
    return reward


def _check_probes(rewards: list[float | PromptError] | PromptError) -> None:
    """Checks the rewards of two different responses.

    Raises:
        ServerFailedError: One has no reward, or both have the same.
    """
    for reward in rewards if isinstance(rewards, list) else [rewards]:
        if isinstance(reward, PromptError):
            raise ServerFailedError(f"cannot judge at all: {reward.detail}")
    assert isinstance(rewards, list)
    if rewards[0] == rewards[1]:
        raise ServerFailedError(
            f"gives two different responses the same reward ({rewards[0]}), as a server does that "
            "can only answer through a sigmoid: serve the model with vLLM 0.32 or later "
            "(--runner pooling --convert classify), which understands use_activation"
        )
