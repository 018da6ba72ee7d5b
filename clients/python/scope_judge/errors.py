"""The exceptions of the client: a tree below `ScopeError`."""

import re
from collections.abc import Mapping
from typing import Any

# Control characters, which steer a terminal or forge a line of a log, signs that change the order
# of a line, and lone surrogates, which cannot be encoded.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class ScopeError(Exception):
    """Root of all exceptions of the client.

    The message says what is wrong and what to do. It contains neither a key nor a judged text.

    Args:
        code: Stable code of the service's error, such as "judge_mismatch", or one of the client:
            "no_connection", "timeout", "unexpected_answer".
        status: HTTP status; None without an answer.
        retry_after_s: When the service asks to be tried again; None without a wish.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        # The texts of an answer: a traceback and a log show them.
        return _STEERING.sub(
            lambda found: found[0].encode("unicode_escape").decode(), f"{self.code}: {self.detail}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process boundaries in trainers; by default only `args` would.
        return _rebuilt, (type(self), self.detail, self.code, self.status, self.retry_after_s)


def _rebuilt(
    kind: type[ScopeError], detail: str, code: str, status: int | None, retry_after_s: float | None
) -> ScopeError:
    return kind(detail, code=code, status=status, retry_after_s=retry_after_s)


class RequestError(ScopeError):
    """The request is at fault (4xx); the same request fails again."""


class AuthenticationError(RequestError):
    """The key is missing, or the service does not know it (401)."""


class ForbiddenError(RequestError):
    """The key's roles, or its calibration sets, do not cover the request (403)."""


class NotFoundError(RequestError):
    """There is no such calibration set, version or route (404)."""


class ConflictError(RequestError):
    """The calibration set belongs to another judge, or has other labels (409)."""


class TooLargeError(RequestError):
    """The body, the batch or a prompt is too long (413), or has too many criteria (422)."""


class UnavailableError(ScopeError):
    """Trying again later may help (429, 503, no connection)."""


class TooSlowError(UnavailableError):
    """There was no answer in time (504, or the client's own timeout)."""


class ServerError(ScopeError):
    """A fault of the service or of its data (other 5xx)."""


class AnswerError(ScopeError):
    """The answer is not one of a scope-judge service, or of one that this client does not know."""


# Other statuses of 400 to 499 are a RequestError, and of 500 to 599 a ServerError.
_OF_STATUS: Mapping[int, type[ScopeError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    429: UnavailableError,
    503: UnavailableError,
    504: TooSlowError,
}


def class_of(status: int, code: str) -> type[ScopeError]:
    """The class of exception for an HTTP status of 400 or more, and the code of the error."""
    if code == "too_many_criteria":
        return TooLargeError
    return _OF_STATUS.get(status, RequestError if status < 500 else ServerError)
