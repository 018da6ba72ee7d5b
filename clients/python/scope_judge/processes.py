"""Calls a function once for the rows of all processes that train together with accelerate."""

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from scope_judge.errors import ScopeError

R = TypeVar("R")
T = TypeVar("T")


def of_all_processes(rows: list[R], judge: Callable[[Sequence[R]], list[T]]) -> list[T]:
    """The results of this process's rows; the first process judges those of all."""
    # A trainer has imported it long ago; without it there is one process.
    if "accelerate" not in sys.modules:
        return judge(rows)
    from accelerate import PartialState
    from accelerate.utils import gather_object

    state = PartialState()
    if state.num_processes == 1:
        return judge(rows)
    everything: list[R] = gather_object(rows)
    begin = sum(gather_object([len(rows)])[: state.process_index])
    outcome: list[T] | ScopeError | TypeError = []
    if state.is_main_process:
        try:
            outcome = judge(everything)
        except (ScopeError, TypeError) as exc:
            outcome = exc
    first = gather_object([outcome])[0]
    if isinstance(first, Exception):
        raise first
    return list(first[begin : begin + len(rows)])
