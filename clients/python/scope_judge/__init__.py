"""The Python client of scope-judge, which compares two responses and says "A", "B" or "abstain"."""

from scope_judge.async_client import AsyncScopeClient
from scope_judge.client import ScopeClient
from scope_judge.errors import (
    AnswerError,
    AuthenticationError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RequestError,
    ScopeError,
    ServerError,
    TooLargeError,
    TooSlowError,
    UnavailableError,
)
from scope_judge.records import ItemError, Judgment, Rewards

__version__ = "0.3.0"
__all__ = [
    "AnswerError",
    "AsyncScopeClient",
    "AuthenticationError",
    "ConflictError",
    "ForbiddenError",
    "ItemError",
    "Judgment",
    "NotFoundError",
    "RequestError",
    "Rewards",
    "ScopeClient",
    "ScopeError",
    "ServerError",
    "TooLargeError",
    "TooSlowError",
    "UnavailableError",
]
