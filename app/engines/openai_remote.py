"""A judge behind OpenAI-compatible servers (vLLM, SGLang, OpenAI), asked over HTTP."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from app.core.errors import EngineUnavailableError, JudgmentFailedError, StartupError
from app.engines.openai_dialects import (
    Ask,
    ChatDialect,
    Dialect,
    TokenDialect,
    by_id_params,
    choices_of,
    decodes_to_labels,
    has_ids,
)
from app.engines.openai_servers import Access, ModelCard, Server, ServerFailedError, Servers
from app.engines.rendering import PromptRenderer, load_tokenizer
from app.engines.turns import Pace
from app.ports import (
    CallTimes,
    EngineIdentity,
    Generated,
    LabelLogits,
    Prompt,
    PromptError,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Of one request, so that it is answered well within its timeout however long the prompts are.
_MOST_TOKENS = 2**15
# Where neither the server nor the user says how long a prompt may be.
_ANY_LENGTH = 2**31
_NO_SUCH_ROUTE = (404, 405, 501)
# Two ids that every vocabulary has, to see whether a server returns log-probabilities by id.
_ANY_IDS = (0, 1)


@dataclass(frozen=True, slots=True)
class OpenAiOptions:
    """Where the judge is served, and how it is asked.

    Args:
        urls: Base URLs, as in http://host:8000/v1; all serve the same model.
        model: Its name there.
        judge: The judge's name in answers.
        tokenizer: Hugging Face id or folder of the model's tokenizer; "top" needs none.
        api_key: Sent to all servers; empty for none.
        scoring: "tokens" sends token ids and asks for the two labels by id, which vLLM knows from
            0.26 on; "top" sends messages and looks for the labels among the 20 most probable
            tokens; "auto" finds out which.
        timeout_s: For one request.
        max_model_len: Context in tokens where it is to be shorter than the servers'.
        probe_every_s: How often each server is looked at.
    """

    urls: tuple[str, ...]
    model: str
    judge: str
    tokenizer: str
    api_key: str = field(default="", repr=False)
    scoring: Literal["auto", "tokens", "top"] = "auto"
    timeout_s: float = 120.0
    max_model_len: int | None = None
    probe_every_s: float = 2.0


class OpenAiEngine:
    """A judge that others serve; where there are several servers, one may die unnoticed."""

    def __init__(self, options: OpenAiOptions) -> None:
        self._options = options
        self._servers = Servers(
            Access(options.urls, options.api_key, options.timeout_s, options.probe_every_s)
        )
        self._pace = Pace()
        # Set by start.
        self._dialect: Dialect | None = None

    async def start(self, prompt: Prompt) -> EngineIdentity:
        """Asks all servers for the model, finds out how to ask it, and scores one prompt on each.

        The identity of the weights is what the servers say of the model: whether other files were
        put under the same name, they do not say.
        """
        options = self._options
        card = await self._servers.open(options.model)
        context = min(card.max_model_len or _ANY_LENGTH, options.max_model_len or _ANY_LENGTH)
        by_id = await self._asks_by_id()
        if by_id:
            dialect: Dialect = await self._token_dialect(prompt, context)
        else:
            dialect = _chat_dialect(prompt, card)

        (ask,) = dialect.asks([prompt], answer_tokens=1)
        if isinstance(ask, PromptError):
            raise StartupError(f"the judge cannot judge at all: {ask.detail}") from ask

        async def rehearse(server: Server) -> None:
            (found,) = await _ask(
                server, dialect, [ask], dialect.label_params, dialect.label_logits
            )
            if isinstance(found, PromptError):
                raise ServerFailedError(f"cannot judge at all: {found.detail}")

        await self._servers.on_each(rehearse)
        self._servers.watch(card, rehearse)
        self._dialect = dialect
        return EngineIdentity(
            judge=options.judge,
            model=options.judge,
            weights="remote " + " ".join(filter(None, (card.id, card.root, card.parent))),
            chat_frame=dialect.chat_frame(prompt),
            label_tokens=dialect.label_tokens,
            dtype="remote",
            max_prompt_tokens=context - 1,
        )

    async def _asks_by_id(self) -> bool:
        if self._options.scoring != "auto":
            return self._options.scoring == "tokens"
        known = await self._servers.on_each(self._knows_label_ids)
        if any(known) and not all(known):
            raise StartupError(
                "only some servers of SCOPE_OPENAI_URLS return log-probabilities by token id: "
                "give SCOPE_OPENAI_SCORING=top, or leave the others out"
            )
        if not all(known):
            logger.warning(
                "The judge's servers tell no log-probabilities by token id: its labels are looked "
                "for among their most probable tokens"
            )
        return all(known)

    async def _knows_label_ids(self, server: Server) -> bool:
        body = {"model": self._options.model, "prompt": [[1]], **by_id_params(_ANY_IDS)}
        try:
            answer = await server.post(TokenDialect.path, body)
        except ServerFailedError as exc:
            # Whoever has no such route says so; a passing fault must not change how it is asked.
            if exc.status not in _NO_SUCH_ROUTE:
                raise
            return False
        choices = choices_of(answer, 1)
        return isinstance(choices, list) and has_ids(choices[0], _ANY_IDS)

    async def _token_dialect(self, prompt: Prompt, context: int) -> TokenDialect:
        options = self._options
        try:
            tokenizer = await asyncio.to_thread(load_tokenizer, options.tokenizer)
        except StartupError as exc:
            raise StartupError(
                f"{exc.detail} (set SCOPE_TOKENIZER to the Hugging Face id or folder of the served "
                "model's tokenizer, or SCOPE_OPENAI_SCORING=top to do without)"
            ) from exc
        labels = PromptRenderer(tokenizer, max_prompt_tokens=_ANY_LENGTH).label_tokens(prompt)
        renderer = PromptRenderer(tokenizer, max_prompt_tokens=context - 1)
        dialect = TokenDialect(options.model, renderer, labels, context=context)
        await self._servers.on_each(lambda server: _check_tokenizer(server, dialect))
        return dialect

    async def stop(self) -> None:
        """Ends what is under way; the servers go on for others."""
        self._dialect = None
        await self._servers.close()

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Sends all prompts at once; both orders of a comparison share a request."""
        dialect = self._running()
        return await self._ask_all(
            prompts,
            lambda place: dialect.label_params,
            dialect.label_logits,
            answer_tokens=1,
            times=times,
        )

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int],
    ) -> list[Generated | PromptError]:
        """Sends all prompts at once; sampled ones in requests of their own, which have one seed."""
        dialect = self._running()
        if len(prompts) != len(seeds):
            raise ValueError(f"{len(prompts)} prompts have {len(seeds)} seeds")
        return await self._ask_all(
            prompts,
            lambda place: dialect.text_params(
                max_tokens=max_tokens, temperature=temperature, seed=seeds[place]
            ),
            dialect.text,
            answer_tokens=max_tokens,
            alone=temperature > 0,
        )

    def _running(self) -> Dialect:
        if self._dialect is None:
            raise EngineUnavailableError("the judge is not running")
        return self._dialect

    async def _ask_all(
        self,
        prompts: Sequence[Prompt],
        params: Callable[[int], dict[str, Any]],
        read: Callable[[Any], T | JudgmentFailedError],
        *,
        answer_tokens: int,
        alone: bool = False,
        times: CallTimes | None = None,
    ) -> list[T | PromptError]:
        """For each prompt what was read of its choice, or the prompt's own error."""
        dialect = self._running()
        # Off the event loop: a thousand long prompts take a second to tokenise.
        times = times or CallTimes()
        with times.rendering():
            asks = await asyncio.to_thread(dialect.asks, prompts, answer_tokens=answer_tokens)
        # A small batch is spread over the servers too.
        share = 2 * -(-len(prompts) // (2 * max(1, len(self._servers))))
        most = 1 if alone else max(2, min(dialect.together, share))
        found: dict[int, T | PromptError] = {
            i: ask for i, ask in enumerate(asks) if not isinstance(ask, Ask)
        }

        async def run(places: Sequence[int]) -> None:
            some = [ask for ask in (asks[i] for i in places) if isinstance(ask, Ask)]
            begun = time.perf_counter()

            def ask_one(server: Server) -> Awaitable[list[T | PromptError]]:
                times.note_wait(time.perf_counter() - begun)
                return _ask(server, dialect, some, params(places[0]), read)

            answers = await self._servers.run(
                ask_one,
                tokens=sum(ask.tokens for ask in some) + answer_tokens * len(some),
                turn=turns[places[0]],
            )
            self._pace.note_done(len(places))
            found.update(zip(places, answers, strict=True))

        with self._pace.call(len(prompts)) as turns:
            await _all(run(places) for places in _requests(asks, most))
        return [found[i] for i in range(len(prompts))]


def _requests(asks: Sequence[Ask | PromptError], most: int) -> Iterator[list[int]]:
    """Places of the prompts that are sent together; a pair of orders is never torn apart."""
    step = min(2, most)
    places: list[int] = []
    tokens = 0
    for start in range(0, len(asks), step):
        pair = {
            start + i: ask.tokens
            for i, ask in enumerate(asks[start : start + step])
            if isinstance(ask, Ask)
        }
        size = sum(pair.values())
        if places and (len(places) + len(pair) > most or tokens + size > _MOST_TOKENS):
            yield places
            places, tokens = [], 0
        places += pair
        tokens += size
    if places:
        yield places


async def _ask(
    server: Server,
    dialect: Dialect,
    asks: Sequence[Ask],
    params: dict[str, Any],
    read: Callable[[Any], T | JudgmentFailedError],
) -> list[T | PromptError]:
    """Asks one server, in as many HTTP requests as the dialect needs."""

    async def send(some: Sequence[Ask]) -> list[T | PromptError]:
        answer = await server.post(dialect.path, dialect.body(some) | params)
        if isinstance(answer, PromptError):
            return [answer] * len(some)
        choices = choices_of(answer, len(some))
        if isinstance(choices, PromptError):
            return [choices] * len(some)
        return [read(choice) for choice in choices]

    step = dialect.together
    parts = await _all(send(asks[i : i + step]) for i in range(0, len(asks), step))
    return [found for part in parts for found in part]


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Does everything at once; what fails first is raised, and the rest cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]


async def _check_tokenizer(server: Server, dialect: TokenDialect) -> None:
    """Another model's tokenizer would make every prompt nonsense, and every score look like one."""
    body = dialect.body([Ask([dialect.label_tokens[0]], 1)]) | dialect.label_params
    answer = await server.post(dialect.path, body | {"return_tokens_as_token_ids": False})
    choices = choices_of(answer, 1)
    if isinstance(choices, PromptError):
        detail = answer.detail if isinstance(answer, PromptError) else choices.detail
        raise ServerFailedError(f"cannot judge at all: {detail}")
    if not decodes_to_labels(choices[0]):
        raise ServerFailedError(
            f"does not call its tokens {dialect.label_tokens} A and B: SCOPE_TOKENIZER names "
            "another tokenizer than the served model's"
        )


def _chat_dialect(prompt: Prompt, card: ModelCard) -> ChatDialect:
    is_vllm = card.owned_by == "vllm"
    if prompt.prefill and not is_vllm:
        raise StartupError(
            "this server cannot go on where a judge's answer begins: leave SCOPE_PREFILL empty"
        )
    return ChatDialect(card.id, is_vllm=is_vllm)
