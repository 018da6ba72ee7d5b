"""Runs CPU work that is too long for the event loop in two threads, which callers share."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from app.fair_queue import CURRENT_FLOW, Claim, FairQueue

P = ParamSpec("P")
T = TypeVar("T")

# The work is pure Python, so more threads would not finish it sooner: each one adds 5 ms to the
# event loop's wait for the interpreter lock. The second thread lets short work pass long work.
_THREADS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    call: Callable[[], Any]
    result: Future[Any]


_workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="off-loop")
_lock = threading.Lock()
# Guarded by the lock.
_queue = FairQueue[_Work]()


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread, like `asyncio.to_thread`, when it is the caller's turn.

    These threads are not the default executor's, which resolves host names and reads files: long
    work must not delay that. Work that has not begun is dropped if its caller is cancelled.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    work = _Work(call=call, result=Future())
    claim = Claim(flow=CURRENT_FLOW.get(), item=work)
    with _lock:
        _queue.add(claim)
    # Each piece of work brings a thread, which then does the piece whose turn it is.
    _workers.submit(_do_next)
    try:
        result: T = await asyncio.wrap_future(work.result)
    except asyncio.CancelledError:
        with _lock:
            if not claim.holds:
                _queue.remove(claim)
        raise
    return result


def _do_next() -> None:
    with _lock:
        # None if work was dropped.
        claim = next(iter(_queue.in_turn()), None)
        if claim is None:
            return
        _queue.hold(claim)
    result = claim.item.result
    try:
        if result.set_running_or_notify_cancel():
            result.set_result(claim.item.call())
    except BaseException as exc:  # noqa: BLE001
        # Raised where the work is awaited. Without a result, that would wait forever.
        result.set_exception(exc)
    finally:
        with _lock:
            _queue.remove(claim)
