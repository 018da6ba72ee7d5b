"""The calls of the service as exchanges, which both clients run."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, urlencode

from scope_judge.answers import (
    CalibrationDetail,
    CalibrationReport,
    ExampleError,
    GroupRewards,
    Info,
    ItemError,
    Judgment,
    Problem,
)
from scope_judge.batches import FIRST_SIZE, BatchSize, Cutter, InOrder, in_parts
from scope_judge.comparisons import Example, Item, Pair, body_of, example_item, pair_item, to_json
from scope_judge.errors import AnswerError, ScopeError, TooLargeError
from scope_judge.exchange import Call, Session, Steps, Waits
from scope_judge.labelling import NextLabels, PoolReport
from scope_judge.large_groups import in_requests, is_splittable
from scope_judge.parsing import parse

R = TypeVar("R")
Asked = Callable[[Sequence[Item]], Steps[list[R]]]

# After an error with one of these, the same comparison may get a judgment.
_PASSING = (429, 503)
# Each request of examples makes a version of the set, so there are few.
_FIRST_EXAMPLES = 100


class Work(Generic[R]):
    """A stream of items that is sent in batches, several at a time.

    Args:
        ask: Sends items in one request.
        failed: Makes the result of a single item that is too large or too slow.
        size: The number of comparisons of a batch.
        max_body_bytes: Largest body that the service accepts.
        in_flight: Most batches at a time.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        ask: Asked[R],
        failed: Callable[[Item, ScopeError], R],
        *,
        size: BatchSize,
        max_body_bytes: int,
        in_flight: int,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._failed = failed
        self._clock = clock
        self._size = size
        self.in_flight = in_flight
        self.cutter = Cutter(size, max_body_bytes)
        self.results = InOrder[R](in_flight)

    def has_room(self) -> bool:
        """Whether another batch may begin."""
        return self.results.has_room(self._size)

    def steps(self, batch: Sequence[Item]) -> Steps[None]:
        """Sends a batch, and puts its results into their place."""
        put = self.results.begin()

        def steps() -> Steps[None]:
            try:
                put((yield from in_parts(batch, self._ask, self._failed, self._size, self._clock)))
            except ScopeError as exc:
                # Raised when it is the turn of this batch.
                put(exc)

        return steps()


class _Part(NamedTuple):
    """The answer about some examples or pairs.

    Args:
        examples: Number of the examples.
        found: The report, or the error of a single example.
    """

    examples: int
    found: CalibrationReport | PoolReport | ScopeError


class Service:
    """The calls of a service.

    Args:
        session: State that the calls share.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._info: Info | None = None
        # The speed that one call has seen is that of the next one with the same path and limit.
        self._sizes: dict[tuple[str, int], BatchSize] = {}

    def get(self, path: str) -> Steps[Any]:
        """Sends GET and returns the JSON of the answer."""
        return self._session.exchange(Call("GET", path))

    def post(self, path: str, body: Any, *, idempotent: bool) -> Steps[Any]:
        """Sends POST with JSON and returns the JSON of the answer."""
        return self._session.exchange(Call("POST", path, to_json(body), idempotent))

    def delete(self, path: str) -> Steps[None]:
        """Sends DELETE, once."""
        return self._session.exchange(Call("DELETE", path, idempotent=False))

    def info(self) -> Steps[Info]:
        """Reads the judge, the defaults and the limits."""
        self._info = parse(Info, (yield from self.get("/info")))
        return self._info

    def judge(self, fields: Mapping[str, Any]) -> Steps[Judgment]:
        """Judges one comparison."""
        return parse(Judgment, (yield from self.post("/judge", fields, idempotent=True)))

    def judging(
        self, criterion: Mapping[str, Any], in_flight: int
    ) -> Steps[Work[Judgment | ItemError]]:
        """Prepares the judging of many comparisons."""

        def ask(items: Sequence[Item]) -> Steps[list[Judgment | ItemError]]:
            return [_result(each) for each in (yield from self._judge_items(items, criterion))]

        return (yield from self._work("/judge/batch", ask, _item_error, in_flight))

    def _work(
        self,
        path: str,
        ask: Asked[R],
        failed: Callable[[Item, ScopeError], R],
        in_flight: int,
        first_size: int = FIRST_SIZE,
    ) -> Steps[Work[R]]:
        limits = (self._info or (yield from self.info())).limits
        in_flight = max(1, min(in_flight, limits.max_batch))
        # All batches together hold no more than one request may have: the service admits at least
        # that much at a time, so this client alone never overloads it.
        most = limits.max_batch // in_flight
        return Work(
            ask,
            failed,
            size=self._sizes.setdefault((path, most), BatchSize(most, first_size)),
            max_body_bytes=limits.max_body_bytes,
            in_flight=in_flight,
            clock=self._session.timing.monotonic,
        )

    def judge_batch(
        self, comparisons: Sequence[Mapping[str, Any]], criterion: Mapping[str, Any]
    ) -> Steps[list[dict[str, Any]]]:
        """Judges comparisons in one request; returns the JSON of each result."""
        items = [pair_item(each, number) for number, each in enumerate(comparisons)]
        return (yield from self._judge_items(items, criterion))

    def _judge_items(
        self, items: Sequence[Item], criterion: Mapping[str, Any]
    ) -> Steps[list[dict[str, Any]]]:
        """Judges items in one request, and again those with a passing error."""
        waits = Waits(self._session)
        places: Sequence[int] = range(len(items))
        found: list[dict[str, Any]] = []
        while True:
            body = body_of(criterion, "comparisons", (items[i] for i in places))
            answer = yield from self._session.exchange(Call("POST", "/judge/batch", body), waits)
            results = _results(answer, "results", len(places), _object)
            found = found or results
            for i, result in zip(places, results, strict=True):
                found[i] = result
            passing = {i: error for i in places if (error := _passing(found[i])) is not None}
            pause = waits.pause_after(next(iter(passing.values()))) if passing else None
            if pause is None:
                return found
            places = list(passing)
            yield pause

    def rewards(self, path: str, fields: Mapping[str, Any]) -> Steps[GroupRewards]:
        """Computes the rewards of one group of responses."""
        return parse(GroupRewards, (yield from self.post(path, fields, idempotent=True)))

    def group_rewards(self, fields: Mapping[str, Any]) -> Steps[GroupRewards]:
        """Computes the rewards of one group, in several requests if one is too small for it."""
        try:
            return (yield from self.rewards("/rewards/group", fields))
        except TooLargeError as exc:
            if not is_splittable(exc, fields):
                raise
        return (yield from in_requests(fields, self._rewards_of_reference))

    def _rewards_of_reference(self, fields: dict[str, Any]) -> Steps[GroupRewards]:
        return self.rewards("/rewards/reference", fields)

    def rewarding(self, options: Mapping[str, Any], in_flight: int) -> Steps[Work[GroupRewards]]:
        """Prepares the rewards of many groups."""

        def ask(groups: Sequence[Item]) -> Steps[list[GroupRewards]]:
            call = Call("POST", "/rewards/groups", body_of(options, "groups", groups))
            try:
                answer = yield from self._session.exchange(call)
            except TooLargeError as exc:
                if len(groups) > 1 or not is_splittable(exc, options):
                    raise
                fields = {**options, **json.loads(groups[0].content)}
                return [(yield from in_requests(fields, self._rewards_of_reference))]
            return _results(answer, "groups", len(groups), _group)

        return (yield from self._work("/rewards/groups", ask, _raise, in_flight))

    def calibration(
        self, name: str, query: Sequence[tuple[str, float]] = ()
    ) -> Steps[CalibrationDetail]:
        """Reads a calibration set, with the thresholds that the query asks for."""
        path = _set_path(name) + (f"?{urlencode(query)}" if query else "")
        return parse(CalibrationDetail, (yield from self.get(path)))

    def next_to_label(
        self, name: str, alpha: float | None, delta: float | None, limit: int
    ) -> Steps[NextLabels]:
        """Reads which pairs to label next."""
        asked = {"alpha": alpha, "delta": delta, "limit": limit}
        query = urlencode({key: value for key, value in asked.items() if value is not None})
        return parse(NextLabels, (yield from self.get(f"{_set_path(name)}/next?{query}")))

    def pool(self, name: str, pairs: Iterator[Pair]) -> Steps[PoolReport]:
        """Adds pairs without labels, one request after the other."""
        items = [pair_item(pair, number) for number, pair in enumerate(pairs)]
        path = f"{_set_path(name)}/pool"

        def ask(some: Sequence[Item]) -> Steps[list[_Part]]:
            call = Call("POST", path, body_of({}, "comparisons", some))
            report = parse(PoolReport, (yield from self._session.exchange(call)))
            return [_Part(len(some), report)]

        return _merged_pool(items, (yield from self._parts(path, items, ask)))

    def calibrate(
        self, fields: Mapping[str, Any], examples: Iterator[Example]
    ) -> Steps[CalibrationReport]:
        """Adds labelled examples, one request after the other."""
        items = [example_item(example, number) for number, example in enumerate(examples)]

        def ask(some: Sequence[Item]) -> Steps[list[_Part]]:
            call = Call("POST", "/calibrate", body_of(fields, "examples", some))
            report = parse(CalibrationReport, (yield from self._session.exchange(call)))
            return [_Part(len(some), report)]

        return _merged(items, (yield from self._parts("/calibrate", items, ask)))

    def _parts(self, path: str, items: Sequence[Item], ask: Asked[_Part]) -> Steps[list[_Part]]:
        """Sends items in as many requests as they need, one after the other."""
        work = yield from self._work(path, ask, _failed_part, 1, _FIRST_EXAMPLES)
        for item in items:
            if batch := work.cutter.add(item):
                yield from work.steps(batch)
        yield from work.steps(work.cutter.rest())
        parts: list[_Part] = []
        while some := work.results.take():
            parts += some
        return parts


def _set_path(name: str) -> str:
    return f"/calibrations/{quote(name, safe='')}"


def _results(answer: Any, name: str, count: int, read: Callable[[Any], R]) -> list[R]:
    """The results of a batch; raises AnswerError if it does not have one for each item."""
    results = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(results, list) or len(results) != count:
        raise AnswerError(
            f"the answer does not have one of `{name}` for each item: check that the address is "
            "that of a scope-judge service",
            code="unexpected_answer",
        )
    return [read(each) for each in results]


def _result(value: Any) -> Judgment | ItemError:
    if isinstance(value, dict) and "error" in value:
        return parse(ItemError, value)
    return parse(Judgment, value)


def _group(value: Any) -> GroupRewards:
    return parse(GroupRewards, value)


def _raise(item: Item, error: ScopeError) -> NoReturn:
    raise error


def _failed_part(item: Item, error: ScopeError) -> _Part:
    return _Part(1, error)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AnswerError("a result is no JSON object", code="unexpected_answer")
    return value


def _passing(result: Mapping[str, Any]) -> ScopeError | None:
    """The error after which the item may get a judgment; None for all other results."""
    if "error" in result:
        error = parse(ItemError, result).error
        return error.exception() if error.status in _PASSING else None
    return None


def _item_error(item: Item, error: ScopeError) -> ItemError:
    return ItemError(item.id, _problem(error))


def _problem(error: ScopeError) -> Problem:
    return Problem(error.code, error.detail, error.status or 504)


def _merged(items: Sequence[Item], parts: Sequence[_Part]) -> CalibrationReport:
    """The last version of the set, with the counts and errors of all parts."""
    reports = [part.found for part in parts if isinstance(part.found, CalibrationReport)]
    errors = _errors(items, parts)
    return replace(
        reports[-1],
        added=sum(report.added for report in reports),
        updated=sum(report.updated for report in reports),
        ties=sum(report.ties for report in reports),
        removed=sum(report.removed for report in reports),
        failed=len(errors),
        errors=errors,
    )


def _merged_pool(items: Sequence[Item], parts: Sequence[_Part]) -> PoolReport:
    """The last version of the set, with the counts, digests and errors of all parts."""
    reports = [part.found for part in parts if isinstance(part.found, PoolReport)]
    errors = _errors(items, parts)
    digests: list[str | None] = []
    for part in parts:
        found = part.found
        digests += found.digests if isinstance(found, PoolReport) else [None] * part.examples
    return replace(
        reports[-1],
        added=sum(report.added for report in reports),
        known=sum(report.known for report in reports),
        failed=len(errors),
        digests=tuple(digests),
        errors=errors,
    )


def _errors(items: Sequence[Item], parts: Sequence[_Part]) -> tuple[ExampleError, ...]:
    """The errors of all parts, with their places among all items.

    Raises:
        ScopeError: Every part failed as a whole.
    """
    errors: list[ExampleError] = []
    place = 0
    for part in parts:
        if isinstance(part.found, ScopeError):
            errors.append(ExampleError(place, items[place].id, _problem(part.found)))
            if all(isinstance(each.found, ScopeError) for each in parts):
                raise part.found
        else:
            errors += [replace(each, index=place + each.index) for each in part.found.errors]
        place += part.examples
    return tuple(errors)
