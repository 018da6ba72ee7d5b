"""Runs CPU work that is too long for the event loop in two threads, which callers share."""

import asyncio
import contextvars
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.flow import CURRENT_FLOW, Flow

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
