"""The connection of the commands to a running service, by the client that trainers use, too."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlencode

import typer

from app.cli.console import CommandError, say

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import Check, ExampleError, ScopeClient
    from scope_judge.exchange import Pause

DEFAULT_URL = "http://127.0.0.1:8000"
_URL_VARIABLE = "SCOPE_URL"
Url = Annotated[str, typer.Option(envvar=_URL_VARIABLE, help="Address of the service.")]
PATIENCE_S = 600.0
Patience = Annotated[
    float,
    typer.Option(min=0, help="Seconds for which a failing request is retried."),
]

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """Items of one request, and what became of them.

    Args:
        items: The items.
        answer: The answer; {} if the judge failed on every item.
        reason: Why the judge failed on every item; "" with an answer.
    """

    items: list[Any]
    answer: dict[str, Any]
    reason: str


class ServiceClient:
    """A connection to a service that has answered and accepted the key.

    Args:
        client: Repeats a request while the service is busy or away.
        once: Sends each request once.
        answer: The answer of GET /info.

    Raises:
        CommandError: The answer is not one of scope-judge.
    """

    def __init__(self, client: "ScopeClient", once: "ScopeClient", answer: Any) -> None:
        from scope_judge import Info

        self._client = client
        self._once = once
        info = read(Info, answer)
        self.max_batch = info.limits.max_batch
        self.max_body_bytes = info.limits.max_body_bytes
        self.judge_name = info.judge
        self.fingerprint = info.fingerprint
        self.version = info.version
        self.min_label_mass = info.min_label_mass
        self.template: str | None = answer.get("template")
        self.on_alarm: str | None = answer.get("on_alarm")

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts JSON and returns the JSON answer.

        While the service is busy, or is being restarted, the request is repeated: everything that
        the commands post this way can arrive twice without harm.

        Raises:
            CommandError: The service does not answer for too long, or answers with an error.
        """
        answer: dict[str, Any] = _or_failure(lambda: self._posted(path, body))
        return answer

    def _posted(self, path: str, body: dict[str, Any]) -> Any:
        try:
            return self._client.post(path, body, idempotent=True)
        except TypeError:
            return self._client.post(path, _plain(body), idempotent=True)

    def post_judged(
        self, path: str, items: list[Any], body_of: Callable[[list[Any]], dict[str, Any]]
    ) -> Iterator[Posted]:
        """Posts items that the service judges, in halves if all of them are too much together.

        A request whose items all fail, such as a last one with a single item, ends no run.

        Args:
            path: Path of the route.
            items: The items, at least one.
            body_of: Items -> body of a request.

        Yields:
            The items and the answer of each request.

        Raises:
            CommandError: The service does not answer for too long, or answers with another error.
        """
        from scope_judge import ServerError, TooLargeError

        def ask(part: list[Any]) -> Posted:
            try:
                return Posted(items=part, answer=self._posted(path, body_of(part)), reason="")
            except ServerError as exc:
                if exc.code != "judgment_failed":
                    raise
                return Posted(items=part, answer={}, reason=exc.detail)
            except TooLargeError as exc:
                if len(part) > 1:
                    raise
                return Posted(items=part, answer={}, reason=exc.detail)

        answers = _in_halves(ask, items)
        while (posted := _or_failure(lambda: next(answers, None))) is not None:
            yield posted

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Returns the JSON answer to a GET, as `post` does.

        Raises:
            CommandError: The service does not answer for too long, or answers with an error.
        """
        answer: dict[str, Any] = _or_failure(lambda: self._client.get(_with_query(path, query)))
        return answer

    def change_once(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Posts a change that must not be repeated, because another change may follow it.

        Raises:
            CommandError: The service does not answer, or answers with an error.
        """
        answer: dict[str, Any] = _or_failure(
            lambda: self._once.post(path, body, idempotent=False), _LOOK_FIRST
        )
        return answer

    def judge(
        self, comparisons: list[Any], criterion: Mapping[str, Any], passing: Collection[str]
    ) -> list[dict[str, Any]]:
        """Judges comparisons, and again those with a passing error.

        A batch that is too large or too slow for the service is halved.

        Args:
            comparisons: Bodies of the comparisons, as in POST /judge/batch.
            criterion: Fields of the whole batch.
            passing: Codes of errors after which the same comparison may get a judgment.

        Returns:
            For each comparison, in order, a judgment or an error that does not pass.

        Raises:
            CommandError: The service does not answer for too long, or answers with an error.
        """
        from scope_judge import TooLargeError

        def ask(part: list[Any]) -> list[dict[str, Any]]:
            try:
                return self._client.judge_batch(part, **criterion)
            except TypeError:
                return self._client.judge_batch(_plain(part), **criterion)
            except TooLargeError as exc:
                if len(part) > 1:
                    raise
                return [{"error": {"code": exc.code, "detail": exc.detail}}]

        parts = _or_failure(lambda: list(_in_halves(ask, comparisons)))
        results = [result for part in parts for result in part]
        for result in results:
            error = result.get("error", {})
            if error.get("code") in passing:
                raise CommandError(f"{error['code']}: {error['detail']}")
        return results


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


def _in_halves(ask: Callable[[list[Any]], T], items: list[Any]) -> Iterator[T]:
    """Yields the answers about items; asks about halves if all are too much for one request."""
    from scope_judge import TooLargeError, TooSlowError

    waiting = [items]
    while waiting:
        part = waiting.pop()
        try:
            answer = ask(part)
        except (TooLargeError, TooSlowError):
            if len(part) == 1:
                raise
            half = len(part) // 2
            waiting += [part[half:], part[:half]]
        else:
            yield answer


_LOOK_FIRST = "; check whether the change was made before you repeat it"


def _or_failure(ask: Callable[[], T], unanswered: str = "") -> T:
    """The answer; ends the command with the message of an error, as `_failing` does."""
    with _failing(unanswered):
        return ask()


@contextmanager
def _failing(unanswered: str = "") -> Iterator[None]:
    """Ends the command with the message of an error of the client.

    Args:
        unanswered: Advice after the message if there is no answer, or none that can be read.
    """
    from scope_judge import AnswerError, ScopeError, UnavailableError

    try:
        yield
    except (AnswerError, UnavailableError) as exc:
        raise CommandError(f"{exc}{unanswered}") from None
    except ScopeError as exc:
        raise CommandError(str(exc)) from None


def read(kind: type[K], answer: Any) -> K:
    """An answer as a dataclass of the client, or one like it.

    Raises:
        CommandError: The answer has another shape.
    """
    from scope_judge.parsing import parse

    return _or_failure(lambda: parse(kind, answer))


def errors_of(posted: Posted, errors: "Iterable[ExampleError]") -> dict[Any, dict[str, Any]]:
    """The result of each item of a request that failed: {"error": ...}.

    Raises:
        CommandError: An error is about an item that was not sent.
    """
    failed: dict[Any, dict[str, Any]] = {}
    for error in errors:
        if not 0 <= error.index < len(posted.items):
            raise unfitting("has an error for an item that was not sent")
        problem = {"code": error.error.code, "detail": error.error.detail}
        failed[posted.items[error.index]] = {"error": problem}
    return failed


def unfitting(fault: str) -> CommandError:
    """The error of an answer that does not fit its request; `fault` goes on after "the answer"."""
    return CommandError(
        f"unexpected_answer: the answer {fault}: check that --url is the address of a scope-judge "
        "service"
    )


def _plain(body: T) -> T:
    """A value with types of JSON only: a Parquet file may have dates and decimals."""
    plain: T = json.loads(written(body))
    return plain


def written(body: Any) -> str:
    """A body as it is sent: ASCII, with NaN allowed, because the service reports invalid values."""
    return json.dumps(body, default=str, separators=(",", ":"))


def is_given(url: str) -> bool:
    """Whether an address was given on the command line."""
    return url not in (DEFAULT_URL, os.environ.get(_URL_VARIABLE))


@contextmanager
def connected(
    url: str, *, patience_s: float = PATIENCE_S, otherwise: str = ""
) -> Iterator[ServiceClient]:
    """Connects to a service, so that an output file is opened only if the service can be used.

    The key is read from SCOPE_API_KEY only: every user of a machine can see the options of a
    process.

    Args:
        url: Address of the service.
        patience_s: How long a request is repeated while the service does not answer.
        otherwise: Alternative to name in the message if there is no service.

    Raises:
        CommandError: The service does not answer, or it refuses the key.
    """
    once = _client(url, patience_s=0)
    client = _client(
        url,
        patience_s=patience_s,
        on_wait=_print_wait,
        # A file is read later, when nobody looks at the age of its thresholds.
        confirmed_only=True,
    )
    with once, client:
        yield ServiceClient(client, once, _or_failure(lambda: once.get("/info"), otherwise))


@contextmanager
def opened(url: str) -> "Iterator[ScopeClient]":
    """A client of a service that has answered; an error of a call ends the command.

    Raises:
        CommandError: The service does not answer, or answers with an error.
    """
    with _failing(), _client(url, on_wait=_print_wait) as client:
        client.info()
        yield client


@contextmanager
def changing(url: str) -> "Iterator[ScopeClient]":
    """A client for one change that must not be repeated, because another change may follow it.

    Raises:
        CommandError: The service does not answer, or answers with an error.
    """
    with _failing(_LOOK_FIRST), _client(url, patience_s=0) as client:
        yield client


def checked_service(url: str, criterion: Mapping[str, Any]) -> "Check":
    """A service that has judged one group.

    Raises:
        CommandError: It does not answer, refuses the key, or cannot judge under the criterion.
    """
    with _client(url, patience_s=0) as client:
        return _or_failure(lambda: client.check(**criterion))


def _client(url: str, **options: Any) -> "ScopeClient":
    """A client; raises CommandError if the address or the key cannot be one."""
    from scope_judge import ScopeClient

    try:
        return ScopeClient(url, **options)
    except ValueError as exc:
        raise CommandError(f"--url: {exc}") from None


def _print_wait(pause: "Pause") -> None:
    say(("waiting for the service:", "dim"), f" {pause.reason}")
