"""Declares each method once, for the synchronous and the asynchronous client.

A method makes the steps of a call; the client that it belongs to runs them.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from scope_judge.exchange import Steps

if TYPE_CHECKING:
    from scope_judge.async_client import AsyncScopeClient
    from scope_judge.batches import Stream
    from scope_judge.client import ScopeClient

P = ParamSpec("P")
T = TypeVar("T")


class Method(Generic[P, T]):
    """A method that returns a result, for type checkers only."""

    @overload
    def __get__(self, client: "ScopeClient", owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: "AsyncScopeClient", owner: Any
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any) -> Any: ...


class Iteration(Generic[P, T]):
    """A method that yields results, for type checkers only."""

    @overload
    def __get__(
        self, client: "ScopeClient", owner: Any
    ) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, client: "AsyncScopeClient", owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: Any) -> Any: ...


def call(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Method[P, T]:
    """A method that returns the result of steps; asynchronous clients return an awaitable."""
    method: Method[P, T] = _method("_run", steps)
    return method


def stream(make: "Callable[Concatenate[Any, P], Stream[T]]") -> Iteration[P, T]:
    """A method that yields a result for each of many inputs, which are sent in batches."""
    method: Iteration[P, T] = _method("_streamed", make)
    return method


def _method(runner: str, declared: Callable[..., Any]) -> Any:
    @wraps(declared)
    def method(client: Any, /, *args: Any, **options: Any) -> Any:
        return getattr(client, runner)(declared(client, *args, **options))

    # The method returns what its client makes of the steps, not the steps.
    shown: Any = method
    shown.__signature__ = signature(declared).replace(return_annotation=Signature.empty)
    return method
