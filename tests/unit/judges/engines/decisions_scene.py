"""Decision servers in tests: started ones, choices, and what fake servers answer to them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.judges.engines.decisions_remote import DecisionOptions, RemoteDecisions
from app.judges.engines.openai_servers import Endpoints
from app.ports import BothOrders, Choice, ChoiceQuestion, DecisionIdentity, OptionProbabilities
from tests.patience import PATIENCE_S
from tests.unit.judges.engines.decisions_fake import LABEL_MASS, FakeDecisions, share
from tests.unit.judges.engines.openai_fake import serving

QUESTION = ChoiceQuestion(instructions="Which is better?", options=("One", "Two"))
SECRET = "xyzzy-secret"


def choices_of(n: int) -> list[Choice]:
    return [Choice(f"Question {i}?", f"first {i}", f"second {i}") for i in range(n)]


PROBES = choices_of(4)


def expected(
    choices: Sequence[Choice],
    *,
    label_mass: float | None = LABEL_MASS,
    decimals: int | None = None,
) -> list[BothOrders]:
    def order(context: str, first: str, second: str) -> OptionProbabilities:
        p = share(context, first, second, decimals)
        rest = 1.0 - p if decimals is None else round(1.0 - p, decimals)
        return OptionProbabilities(p, rest, label_mass)

    return [
        BothOrders(order(c.context, c.first, c.second), order(c.context, c.second, c.first))
        for c in choices
    ]


def servers_of(*servers: FakeDecisions, api_key: str = "") -> RemoteDecisions:
    endpoints = Endpoints(
        urls=tuple(server.url for server in servers),
        api_key=api_key,
        timeout_s=PATIENCE_S,
        probe_every_s=0.02,
    )
    return RemoteDecisions(DecisionOptions(endpoints=endpoints, model="the-judge"))


@asynccontextmanager
async def started(*servers: FakeDecisions) -> AsyncIterator[RemoteDecisions]:
    """Yields started servers; the requests of the start are not counted."""
    async with serving(*servers):
        remote = servers_of(*servers)
        try:
            await remote.start(QUESTION, PROBES)
            for server in servers:
                server.asked.clear()
            yield remote
        finally:
            await remote.stop()


async def identity_of(*servers: FakeDecisions, api_key: str = "") -> DecisionIdentity:
    async with serving(*servers):
        remote = servers_of(*servers, api_key=api_key)
        try:
            return await remote.start(QUESTION, PROBES)
        finally:
            await remote.stop()
