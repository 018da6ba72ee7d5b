"""Faster imports of large packages."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing(*packages: str) -> Iterator[None]:
    """Turns garbage collection off while packages are imported for the first time in the block.

    vLLM's modules are more than a million objects. The collector visits them again and again while
    they are made, and finds no garbage. They live until the end of the process, so later
    collections leave them out, too.

    Args:
        packages: Names of packages. Nothing changes if all of them have been imported.
    """
    if not gc.isenabled() or all(name in sys.modules for name in packages):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
