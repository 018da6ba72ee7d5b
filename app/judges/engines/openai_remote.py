"""The engine for a judge behind OpenAI-compatible servers (vLLM, SGLang, OpenAI), over HTTP."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from app.core.errors import EngineUnavailableError, JudgmentFailedError, StartupError
from app.judges.engines.openai_dialects import (
    Ask,
    ChatDialect,
    Dialect,
    TokenDialect,
    WrittenThought,
    by_id_params,
    choices_of,
    decodes_to_labels,
    has_ids,
    tokens_of,
)
from app.judges.engines.openai_servers import Endpoints, Server, ServerFailedError, ServerPool
from app.judges.engines.rendering import PromptRenderer, load_tokenizer
from app.judges.engines.thinking import UseOfTemplate
from app.judges.engines.turns import run_all
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    OnStage,
    Prompt,
    PromptError,
    Sampling,
    Thought,
    no_stage,
)
from app.settings import Settings, folder_or_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
T = TypeVar("T")

_NO_SUCH_ROUTE = (404, 405, 501)
_REHEARSED = Sampling(max_tokens=16, temperature=1.0, seeds=(1,))
# Parameters of sampled answers that some servers refuse, or take without an effect.
_PARAMETERS = ("n", "seed", "temperature")
# No model writes the same random letters four times by chance.
_PROBE = Prompt(system="", user="Write twenty random letters.", prefill="")
_ANSWERS = 4
_TOKENS = 24
_SAMPLING = Sampling(max_tokens=_TOKENS, temperature=1.0, seeds=(1,), n=_ANSWERS)
# Two ids of every vocabulary, to test whether a server returns log-probabilities by id.
_ANY_IDS = (0, 1)


async def served_tokenizer(settings: Settings) -> "PreTrainedTokenizerBase":
    """Loads the tokenizer of the served model."""
    try:
        return await asyncio.to_thread(
            load_tokenizer, folder_or_id(settings.tokenizer or settings.model)
        )
    except StartupError as exc:
        top = ", or set SCOPE_OPENAI_SCORING=top, which needs no tokenizer"
        raise StartupError(
            f"{exc.detail} (set SCOPE_TOKENIZER to the Hugging Face id or folder of the served "
            f"model's tokenizer{'' if settings.openai_scoring == 'rewards' else top})"
        ) from exc


class OpenAiEngine:
    """A judge on remote servers; requests fail over if there are several."""

    def __init__(self, endpoints: Endpoints, settings: Settings) -> None:
        self._settings = settings
        self._use = UseOfTemplate.of(settings)
        # Otherwise the judge answers in words only, and servers without log-probabilities will do.
        self._needs_labels = settings.scoring == "labels"
        self._servers = ServerPool(endpoints)
        # Set by start.
        self._dialect: Dialect | None = None
        self._left_out: frozenset[str] = frozenset()

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        """Checks the model on every server, chooses the dialect, scores one prompt on each."""
        settings, use = self._settings, self._use
        card = await self._servers.open(settings.model)
        context = card.context(settings.max_model_len)
        by_id = await self._asks_by_id()
        if by_id:
            dialect: Dialect = await self._token_dialect(prompt, context)
        else:
            chat = dialect = ChatDialect(card.id, is_vllm=card.owned_by == "vllm", use=use)
            if not chat.is_vllm:
                if prompt.prefill:
                    raise StartupError(
                        "this server cannot continue an answer that begins with a prefill: "
                        "leave SCOPE_PREFILL empty"
                    )
                await self._servers.on_each(lambda server: _find_tokens_name(server, chat))

        (ask,) = dialect.asks([prompt], answer_tokens=1)
        if isinstance(ask, PromptError):
            raise StartupError(f"the judge cannot judge at all: {ask.detail}") from ask

        async def rehearse(server: Server) -> None:
            answer: object
            if self._needs_labels or (by_id and use.thinks):
                (answer,) = await _ask(
                    server, dialect, [ask], dialect.label_params, dialect.label_logits
                )
            else:
                params = self._taken(dialect.text_params(_REHEARSED, 0))
                (answer,) = await _ask(server, dialect, [ask], params, dialect.text)
            if isinstance(answer, PromptError):
                raise ServerFailedError(f"cannot judge at all: {answer.detail}")

        if not self._needs_labels:
            refused = await self._servers.on_each(
                lambda server: _find_left_out(server, dialect, is_vllm=card.owned_by == "vllm")
            )
            self._left_out = frozenset().union(*refused)
        await self._servers.on_each(rehearse)
        self._servers.start_probes(rehearse, card=card)
        self._dialect = dialect
        # The frame of a prompt that is rendered here has their effect.
        return EngineIdentity(
            judge=settings.judge_name,
            weights=card.weights,
            chat_frame=dialect.chat_frame(prompt),
            label_tokens=dialect.label_tokens,
            dtype="remote",
            max_prompt_tokens=context - 1,
            left_out=tuple(sorted(self._left_out)),
            think_end=dialect.think_end,
            unusual={"chat_template_kwargs": dict(use.given)} if use.given and not by_id else {},
        )

    def _taken(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters that the servers take."""
        return {name: value for name, value in params.items() if name not in self._left_out}

    async def _asks_by_id(self) -> bool:
        if self._settings.openai_scoring != "auto":
            return self._settings.openai_scoring == "tokens"
        known = await self._servers.on_each(self._knows_label_ids)
        if any(known) and not all(known):
            raise StartupError(
                "only some servers of SCOPE_OPENAI_URLS return log-probabilities by token id: "
                "set SCOPE_OPENAI_SCORING=top, or remove the others"
            )
        if not all(known) and self._needs_labels:
            logger.warning(
                "The judge's servers return no log-probabilities by token id: the labels are "
                "read from the most probable tokens, and some pairs may get no judgment"
            )
        return all(known)

    async def _knows_label_ids(self, server: Server) -> bool:
        body = {"model": self._settings.model, "prompt": [[1]], **by_id_params(_ANY_IDS)}
        try:
            answer = await server.post(TokenDialect.path, body)
        except ServerFailedError as exc:
            # Only these statuses mean that the route is missing. A transient fault must not
            # change the dialect.
            # Without need of labels any refusal will do: some proxies answer everything with 500.
            refuses = exc.status is not None and not self._needs_labels
            if exc.status not in _NO_SUCH_ROUTE and not refuses:
                raise
            return False
        choices = choices_of(answer, 1)
        return isinstance(choices, list) and has_ids(choices[0], _ANY_IDS)

    async def _token_dialect(self, prompt: Prompt, context: int) -> TokenDialect:
        tokenizer = await served_tokenizer(self._settings)
        renderer = PromptRenderer(tokenizer, max_prompt_tokens=context - 1, use=self._use)
        dialect = TokenDialect(self._settings.model, renderer, prompt, context=context)
        await self._servers.on_each(lambda server: _check_tokenizer(server, dialect))
        return dialect

    async def stop(self) -> None:
        self._dialect = None
        await self._servers.close()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        dialect, times = self._running(), times or CallTimes()
        asks = await _prepared(dialect.asks, prompts, 1, times)
        return await self._labels_of(asks, times)

    async def _labels_of(
        self, asks: Sequence[Ask | PromptError], times: CallTimes
    ) -> list[LabelLogits | PromptError]:
        dialect = self._running()
        return await self._send(
            asks,
            lambda place: dialect.label_params,
            dialect.label_logits,
            answer_tokens=1,
            times=times,
        )

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        dialect, times = self._running(), times or CallTimes()
        rendered = await _prepared(dialect.asks, prompts, sampling.max_tokens, times)
        asks, sampling = self._one_each(rendered, sampling)
        return await self._send(
            asks,
            lambda place: self._taken(dialect.text_params(sampling, place)),
            dialect.text,
            answer_tokens=sampling.max_tokens,
            n=sampling.n,
            # One request has one seed.
            alone=sampling.temperature > 0,
            times=times,
        )

    def _one_each(self, asked: Sequence[T], sampling: Sampling) -> tuple[Sequence[T], Sampling]:
        """The same answers with a request for each, where the servers do not take `n`."""
        if "n" not in self._left_out:
            return asked, sampling
        seeds = [seed + i for seed in sampling.seeds for i in range(sampling.n)]
        return (
            [one for one in asked for _ in range(sampling.n)],
            replace(sampling, seeds=seeds, n=1),
        )

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        dialect, times = self._running(), times or CallTimes()
        assert isinstance(dialect, TokenDialect), "a chat cannot be continued"
        rendered = await _prepared(dialect.asks_of_thoughts, prompts, sampling.max_tokens, times)
        asks, sampling = self._one_each(rendered, sampling)
        written = await self._send(
            asks,
            lambda place: self._taken(dialect.thought_params(sampling, place)),
            dialect.written_thought,
            answer_tokens=sampling.max_tokens,
            n=sampling.n,
            alone=True,
            times=times,
        )
        ended = {
            place: dialect.behind(asks[place // sampling.n], thought)
            for place, thought in enumerate(written)
            if isinstance(thought, WrittenThought) and thought.ended
        }
        labels = await self._labels_of(list(ended.values()), times)
        read = dict(zip(ended, labels, strict=True))
        return [_thought(one, read.get(place)) for place, one in enumerate(written)]

    def _running(self) -> Dialect:
        if self._dialect is None:
            raise EngineUnavailableError("the judge is not running")
        return self._dialect

    async def _send(
        self,
        asks: Sequence[Ask | PromptError],
        params: Callable[[int], dict[str, Any]],
        read: Callable[[Any], T | JudgmentFailedError],
        *,
        answer_tokens: int,
        n: int = 1,
        alone: bool = False,
        times: CallTimes,
    ) -> list[T | PromptError]:
        """Sends prompts to the servers and reads the n choices of each, or n times its error.

        Args:
            params: Place of a request's first prompt -> parameters of the request.
            read: Reads one choice of an answer.
            alone: Whether each prompt has its own request.
        """
        dialect = self._running()

        async def ask(server: Server, places: Sequence[int]) -> list[list[T | PromptError]]:
            sent = [ask for ask in (asks[i] for i in places) if isinstance(ask, Ask)]
            answers = await _ask(server, dialect, sent, params(places[0]), read, times, n=n)
            return [answers[i : i + n] for i in range(0, len(answers), n)]

        results = await self._servers.spread(
            ask,
            [ask.tokens + n * answer_tokens if isinstance(ask, Ask) else None for ask in asks],
            # A chat request has one prompt, and both orders of a pair still share a turn.
            together=1 if alone else max(2, dialect.together),
            step=1 if alone else 2,
            times=times,
        )
        return [
            answer
            for place, ask in enumerate(asks)
            for answer in (results[place] if isinstance(ask, Ask) else [ask] * n)
        ]


async def _prepared(
    asks: Callable[..., list[Ask | PromptError]],
    prompts: Sequence[Prompt],
    answer_tokens: int,
    times: CallTimes,
) -> list[Ask | PromptError]:
    with times.rendering():
        # Off the event loop: a thousand long prompts take a second to tokenize.
        return await asyncio.to_thread(asks, prompts, answer_tokens=answer_tokens)


def _thought(
    thought: WrittenThought | PromptError, labels: LabelLogits | PromptError | None
) -> Thought | PromptError:
    if not isinstance(thought, WrittenThought):
        return thought
    return labels if isinstance(labels, PromptError) else Thought(thought.text, labels)


async def _ask(
    server: Server,
    dialect: Dialect,
    asks: Sequence[Ask],
    params: dict[str, Any],
    read: Callable[[Any], T | JudgmentFailedError],
    times: CallTimes | None = None,
    *,
    n: int = 1,
) -> list[T | PromptError]:
    """Sends prompts to one server, in as many HTTP requests as the dialect needs."""

    async def send(chunk: Sequence[Ask]) -> list[T | PromptError]:
        answer = await server.post(dialect.path, dialect.body(chunk) | params)
        if isinstance(answer, PromptError):
            return [answer] * (len(chunk) * n)
        choices = choices_of(answer, len(chunk) * n)
        if isinstance(choices, PromptError):
            return [choices] * (len(chunk) * n)
        if times is not None:
            times.prompt_tokens += tokens_of(answer, "prompt_tokens")
            times.written_tokens += tokens_of(answer, "completion_tokens")
        return [read(choice) for choice in choices]

    step = dialect.together
    parts = await run_all(send(asks[i : i + step]) for i in range(0, len(asks), step))
    return [answer for part in parts for answer in part]


async def _check_tokenizer(server: Server, dialect: TokenDialect) -> None:
    """Checks that the server spells the label tokens A and B.

    With another model's tokenizer every prompt would be nonsense, but the scores would look sound.
    """
    body = dialect.body([Ask(content=[dialect.label_tokens[0]], tokens=1)]) | dialect.label_params
    answer = await server.post(dialect.path, body | {"return_tokens_as_token_ids": False})
    choices = choices_of(answer, 1)
    if isinstance(choices, PromptError):
        detail = answer.detail if isinstance(answer, PromptError) else choices.detail
        raise ServerFailedError(f"cannot judge at all: {detail}")
    if not decodes_to_labels(choices[0]):
        raise ServerFailedError(
            f"does not spell its tokens {dialect.label_tokens} A and B: SCOPE_TOKENIZER names "
            "another tokenizer than the served model's"
        )


async def _find_tokens_name(server: Server, dialect: ChatDialect) -> None:
    """Finds out by which name a server takes the length of an answer.

    A server that takes neither name refuses the first prompt, too, with its reason.
    """
    (ask,) = dialect.asks([_PROBE], answer_tokens=_TOKENS)
    assert isinstance(ask, Ask)
    for name in ("max_tokens", "max_completion_tokens"):
        body = dialect.body([ask]) | {name: _TOKENS}
        if (await server.send("POST", dialect.path, body=body)).status < 400:
            dialect.tokens_name = name
            return


async def _find_left_out(server: Server, dialect: Dialect, *, is_vllm: bool) -> frozenset[str]:
    """Returns which of n, seed and temperature a server refuses, or takes without an effect.

    On vLLM, what is taken works.
    """
    every = frozenset(_PARAMETERS)
    first = await _answers(server, dialect, every)
    if first is None:
        every = frozenset(
            [name for name in _PARAMETERS if await _answers(server, dialect, {name}) is not None]
        )
        first = await _answers(server, dialect, every)
    if is_vllm or first is None:
        return frozenset(_PARAMETERS) - every
    without_effect = set()
    if "n" in every and len(set(first)) == 1:
        # One seed for all n answers makes them equal.
        without_effect.add("n")
    if "seed" in every and await _answers(server, dialect, every) != first:
        without_effect.add("seed")
    return frozenset(_PARAMETERS) - every | without_effect


async def _answers(
    server: Server, dialect: Dialect, parameters: Collection[str]
) -> list[str] | None:
    """The answers to the probe with some of the parameters; None if the server refuses them."""
    (ask,) = dialect.asks([_PROBE], answer_tokens=_TOKENS)
    if not isinstance(ask, Ask):
        return None
    given = dialect.text_params(_SAMPLING, 0)
    params = {
        name: value
        for name, value in given.items()
        if name not in _PARAMETERS or name in parameters
    }
    try:
        answer = await server.post(dialect.path, dialect.body([ask]) | params)
    except ServerFailedError as exc:
        # Some proxies answer 500 to a parameter that they do not know.
        if exc.status is None or exc.status in (401, 403):
            raise
        return None
    choices = choices_of(answer, _ANSWERS if "n" in parameters else 1)
    if isinstance(choices, PromptError):
        return None
    texts = map(dialect.text, choices)
    return [text.text if isinstance(text, Generated) else "" for text in texts]
