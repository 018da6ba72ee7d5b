"""Work that is too long for the event loop, in two threads that only do such work."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The work is Python's own, so that more threads would not finish it sooner: each only adds a turn
# of 5 ms to the time that the event loop waits for the interpreter lock. A second one lets short
# work pass long work.
_THREADS = 2

_workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="off-loop")


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a thread, like `asyncio.to_thread`, but not in the default executor.

    The default executor resolves names and reads files: a second of computing must not delay these.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_workers, call)
