"""Whose work is done now: the caller and the kind of a request, and what the judge did for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["single", "batch", "rewards", "calibration"]


@dataclass(kw_only=True, slots=True)
class RequestUsage:
    """The work of the judge for one request; the scorer adds to it.

    Args:
        engine_prompts: Prompts that the judge read.
        prompt_tokens: Their tokens; 0 for a judge that counts none.
        written_tokens: Tokens of answers in words, for which only `evaluate` asks.
        escalated: Comparisons that the large judge of a cascade was asked about.
        large_prompts: Prompts that it read.
        large_prompt_tokens: Their tokens.
    """

    engine_prompts: int = 0
    prompt_tokens: int = 0
    written_tokens: int = 0
    escalated: int = 0
    large_prompts: int = 0
    large_prompt_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A request, or the service's own work; those of one caller and one kind are equal.

    Args:
        caller: Name of the caller's key, or its address if the service has no keys; empty for the
            service's own work.
        kind: Kind of the requests; everything that is neither judged nor rewarded is "calibration".
        key: Name under which the use of the caller's key is counted.
        comparisons_per_minute: Limit of the key; None without one.
        usage: The work of the judge for this request alone.
    """

    caller: str = ""
    kind: Kind = "calibration"
    key: str = field(default="service", compare=False)
    comparisons_per_minute: int | None = field(default=None, compare=False)
    usage: RequestUsage = field(default_factory=RequestUsage, compare=False)


_OWN_WORK = Flow()
# Set by the API for each request, and inherited by the tasks and threads that work on it.
CURRENT_FLOW: ContextVar[Flow] = ContextVar("flow", default=_OWN_WORK)


@contextmanager
def flowing(flow: Flow) -> Iterator[None]:
    """Counts the work of the block as work for a flow."""
    before = CURRENT_FLOW.set(flow)
    try:
        yield
    finally:
        CURRENT_FLOW.reset(before)
