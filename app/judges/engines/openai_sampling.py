"""Finds out at the start which parameters of sampled answers a server takes."""

from collections.abc import Collection

from app.judges.engines.openai_dialects import Ask, ChatDialect, Dialect, choices_of
from app.judges.engines.openai_servers import Server, ServerFailedError
from app.ports import Generated, Prompt, PromptError, Sampling

_PARAMETERS = ("n", "seed", "temperature")
# No model writes the same random letters four times by chance.
_PROBE = Prompt(system="", user="Write twenty random letters.", prefill="")
_ANSWERS = 4
_TOKENS = 24
_SAMPLING = Sampling(max_tokens=_TOKENS, temperature=1.0, seeds=(1,), n=_ANSWERS)


async def find_tokens_name(server: Server, dialect: ChatDialect) -> None:
    """Finds out by which name a server takes the length of an answer.

    A server that takes neither name refuses the first prompt, too, with its reason.

    Raises:
        ServerFailedError: The server does not answer, or refuses the key.
        ServerBusyError: The server is overloaded.
    """
    (ask,) = dialect.asks([_PROBE], answer_tokens=_TOKENS)
    assert isinstance(ask, Ask)
    for name in ("max_tokens", "max_completion_tokens"):
        body = dialect.body([ask]) | {name: _TOKENS}
        if (await server.send("POST", dialect.path, body=body)).status < 400:
            dialect.tokens_name = name
            return


async def left_out(server: Server, dialect: Dialect, *, is_vllm: bool) -> frozenset[str]:
    """Returns which of n, seed and temperature a server refuses, or takes without an effect.

    Args:
        server: The server.
        dialect: The way to ask it.
        is_vllm: Whether the server is vLLM, where all three work.

    Raises:
        ServerFailedError: The server does not answer.
        ServerBusyError: The server is overloaded.
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
