"""Tells whose work is done now, and does long work in two threads, where callers take turns."""

import asyncio
import contextvars
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar

Kind = Literal["single", "batch", "rewards", "calibration"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A request, or the service's own work; those of one caller and one kind are equal.

    Args:
        caller: Name of the caller's key, or its address if the service has no keys; empty for the
            service's own work.
        kind: Kind of the requests; everything that is neither judged nor rewarded is "calibration".
        key: Name under which the use of the caller's key is counted.
        comparisons_per_minute: Limit of the key; None without one.
        usage: The work of the judge for this request alone, which the scorer counts:
            `engine_prompts` that it read and their `prompt_tokens`; of the large judge of a
            cascade also `escalated` comparisons, `large_prompts` and `large_prompt_tokens`.
    """

    caller: str = ""
    kind: Kind = "calibration"
    key: str = field(default="service", compare=False)
    comparisons_per_minute: int | None = field(default=None, compare=False)
    usage: Counter[str] = field(default_factory=Counter, compare=False)


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


P = ParamSpec("P")
T = TypeVar("T")

# The work is pure Python, so more threads would not finish it sooner: each one adds 5 ms to the
# event loop's wait for the interpreter lock. The second thread lets short work pass long work.
_workers = ThreadPoolExecutor(2, thread_name_prefix="off-loop")
_lock = threading.Lock()
# The work of each flow that has not begun; the flow whose turn is next comes first.
_lines: OrderedDict[Flow, deque[tuple[Callable[[], Any], Future[Any]]]] = OrderedDict()


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread, like `asyncio.to_thread`; flows take turns.

    These threads are not the default executor's, which resolves host names and reads files: long
    work must not delay that. Work that has not begun is dropped if its caller is cancelled.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    # No frame of an error may have its future: the two would stay in memory until a collection.
    return await asyncio.wrap_future(_in_line(call))


def _in_line(call: Callable[[], T]) -> Future[T]:
    result = Future[T]()
    with _lock:
        _lines.setdefault(CURRENT_FLOW.get(), deque()).append((call, result))
    _workers.submit(_do_next)
    return result


def _do_next() -> None:
    with _lock:
        flow, line = _lines.popitem(last=False)
        call, result = line.popleft()
        if line:
            _lines[flow] = line
    if result.set_running_or_notify_cancel():
        try:
            result.set_result(call())
        except BaseException as exc:  # noqa: BLE001
            # Raised where the work is awaited, which would otherwise wait forever.
            result.set_exception(exc)
            del result
