"""Runs CPU work that is too long for the event loop in two threads, which callers share."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The work is pure Python, so more threads would not finish it sooner: each one adds 5 ms to the
# event loop's wait for the interpreter lock. The second thread lets short work pass long work.
_workers = ThreadPoolExecutor(2, thread_name_prefix="off-loop")


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread, like `asyncio.to_thread`.

    These threads are not the default executor's, which resolves host names and reads files: long
    work must not delay that. Work that has not begun is dropped if its caller is cancelled.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_workers, call)
