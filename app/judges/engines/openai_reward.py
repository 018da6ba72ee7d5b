"""A reward model behind vLLM's servers: /classify, asked for the head's raw output."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from app.core.comparison import Turn
from app.core.errors import EngineUnavailableError, JudgmentFailedError, RequestError, StartupError
from app.core.fingerprint import JudgeIdentity
from app.judges.engines.openai_remote import served_tokenizer
from app.judges.engines.openai_servers import Endpoints, Server, ServerFailedError, ServerPool
from app.judges.engines.rendering import PROBE, ConversationRenderer, chat_frame_of
from app.judges.reward_model import reward_identity
from app.ports import CallTimes, Conversation, OnStage, PromptError, no_stage
from app.settings import Settings

# vLLM has this route beside /v1.
_ROUTE = "/../classify"
_NO_SUCH_ROUTE = (404, 405, 501)
# Conversations of one request.
_TOGETHER = 32
# Its reward differs from that of the probe on every model.
_OTHER_PROBE: Conversation = (PROBE[0], Turn("assistant", "Bananas are yellow."))


class OpenAiRewardModel:
    """A reward model on remote servers; requests fail over if there are several."""

    def __init__(self, endpoints: Endpoints, settings: Settings) -> None:
        self._settings = settings
        self._servers = ServerPool(endpoints)
        # Set by start.
        self._renderer: ConversationRenderer | None = None

    async def start(self, on_stage: OnStage = no_stage) -> JudgeIdentity:
        card = await self._servers.open(self._settings.model)
        context = card.context(self._settings.max_model_len)
        tokenizer = await served_tokenizer(self._settings)
        chat_frame = chat_frame_of(tokenizer)
        renderer = ConversationRenderer(tokenizer, max_prompt_tokens=context)
        probes: list[list[int]] = []
        for ids in renderer.token_ids([PROBE, _OTHER_PROBE]):
            if isinstance(ids, RequestError):
                raise StartupError(f"the judge cannot judge at all: {ids.detail}") from ids
            probes.append(ids)

        async def rehearse(server: Server) -> None:
            try:
                rewards = await self._asked(server, probes)
            except ServerFailedError as exc:
                if exc.status in _NO_SUCH_ROUTE:
                    raise ServerFailedError("serves no reward model: it has no /classify") from exc
                raise
            _check_probes(rewards)

        await self._servers.on_each(rehearse)
        self._servers.start_probes(rehearse, card=card)
        self._renderer = renderer
        return reward_identity(
            judge=self._settings.judge_name,
            architecture="remote",
            weights=card.weights,
            chat_frame=chat_frame,
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
        times.prompt_tokens += sum(len(ids) for ids in rendered if isinstance(ids, list))

        async def ask(server: Server, places: Sequence[int]) -> list[float | PromptError]:
            prompts = [ids for ids in (rendered[i] for i in places) if isinstance(ids, list)]
            together = await self._asked(server, prompts)
            if isinstance(together, list):
                return together
            if len(prompts) == 1:
                return [together]
            # One conversation that the server refuses must not fail the others.
            alone = [await self._asked(server, [ids]) for ids in prompts]
            return [answer[0] if isinstance(answer, list) else answer for answer in alone]

        results = await self._servers.spread(
            ask,
            [len(ids) if isinstance(ids, list) else None for ids in rendered],
            together=_TOGETHER,
            times=times,
        )
        return [results[i] if isinstance(ids, list) else ids for i, ids in enumerate(rendered)]

    async def _asked(
        self, server: Server, prompts: Sequence[list[int]]
    ) -> list[float | PromptError] | PromptError:
        """The rewards of some conversations, or the error of the whole request."""
        body: dict[str, Any] = {
            "model": self._settings.model,
            "input": list(prompts),
            # Otherwise the server would put a sigmoid over the reward.
            "use_activation": False,
        }
        answer = await server.post(_ROUTE, body)
        return answer if isinstance(answer, PromptError) else _rewards_in(answer, len(prompts))


def _rewards_in(
    answer: dict[str, Any], count: int
) -> list[float | PromptError] | JudgmentFailedError:
    """Reads the rewards of an answer in the order of the request."""
    try:
        entries = sorted(answer["data"], key=lambda entry: entry["index"])
        if [entry["index"] for entry in entries] != list(range(count)):
            return JudgmentFailedError("the judge's server answered about other conversations")
        return [_reward_in(entry["probs"]) for entry in entries]
    except (KeyError, TypeError):
        return JudgmentFailedError("the judge's server answered without rewards")


def _reward_in(values: Any) -> float | PromptError:
    if not isinstance(values, list) or len(values) != 1:
        return JudgmentFailedError("the judge's server answered with several numbers, or with none")
    (value,) = values
    if type(value) in (int, float):
        # An integer of 400 digits has no float.
        with suppress(OverflowError):
            if math.isfinite(value):
                return float(value)
    return JudgmentFailedError("the judge's server answered with a reward that is no finite number")


def _check_probes(rewards: list[float | PromptError] | PromptError) -> None:
    """Checks that two different responses have different rewards."""
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
