"""The calls of the service as exchanges, which both clients run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from scope_judge.batches import FIRST_SIZE, Asked, BatchSize, Work
from scope_judge.comparisons import (
    Absorption,
    Criterion,
    Example,
    Group,
    GroupRule,
    Item,
    Pair,
    Question,
    ReferenceRule,
    Response,
    body_of,
    checked,
    comparison,
    example_item,
    given_fields,
    group_fields,
    pair_item,
    to_json,
)
from scope_judge.errors import AnswerError, ScopeError
from scope_judge.exchange import Call, Session, Steps, Waits
from scope_judge.parsing import parse
from scope_judge.records import (
    AbsorbReport,
    AuditLabels,
    AuditPage,
    AuditTrail,
    CalibrationDetail,
    CalibrationPage,
    CalibrationReport,
    Check,
    Deletion,
    ExampleError,
    Identifier,
    Info,
    ItemError,
    Judgment,
    Label,
    Monitor,
    NextLabels,
    PoolReport,
    Problem,
    RequestUsage,
    Resumed,
    Rewards,
    RollbackReport,
    SingleJudgment,
    Versions,
)

R = TypeVar("R")

# After an error with one of these, the same comparison may get a judgment.
_PASSING = (429, 503)
# Each request of examples makes a version of the set, so there are few.
_FIRST_EXAMPLES = 100
_PROBE: Group = ("Is the number 37 even or odd?", ["odd", "even"])
# The service takes so many labels of audits in one request, and lists so many audits.
_MOST_AUDITS = 1000


class _Result(NamedTuple):
    """One result of a batch: its JSON, and the judgment or the error that it is."""

    json: dict[str, Any]
    outcome: Judgment | ItemError


class _Part(NamedTuple):
    """The answer about some examples or pairs.

    Args:
        examples: Number of the examples.
        outcome: The report, or the error of a single example.
    """

    examples: int
    outcome: CalibrationReport | PoolReport | ScopeError


class Service:
    """The calls of a service."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._info: Info | None = None
        # A call starts with the speed of the last one with the same path and limit.
        self._sizes: dict[tuple[str, int], BatchSize] = {}

    def get(self, path: str) -> Steps[Any]:
        """Sends GET and returns the JSON of the answer."""
        return self._session.exchange(Call("GET", path))

    def post(self, path: str, body: Any, *, idempotent: bool) -> Steps[Any]:
        """Sends POST with JSON and returns the JSON of the answer."""
        return self._session.exchange(Call("POST", path, to_json(body), idempotent))

    def delete(self, path: str) -> Steps[Any]:
        """Sends DELETE, once, and returns the JSON of the answer, if it has any."""
        return self._session.exchange(Call("DELETE", path, idempotent=False))

    def _read(self, kind: type[R], call: Call) -> Steps[R]:
        """Sends a request and reads the answer into a dataclass."""
        return parse(kind, (yield from self._session.exchange(call)))

    def info(self) -> Steps[Info]:
        """Reads the judge, the defaults and the limits."""
        self._info = yield from self._read(Info, Call("GET", "/info"))
        return self._info

    def check(self, rule: Mapping[str, Any]) -> Steps[Check]:
        """Judges a group of two responses that any judge can read."""
        clock = self._session.timing.monotonic
        info = yield from self.info()
        # The group is not in the format of a chat template.
        asked = {k: v for k, v in checked(rule, GroupRule).items() if k != "rendered"}
        begun = clock()
        found = yield from self.rewards_of(_PROBE, {**asked, "comparisons": True})
        if found.errors:
            raise found.errors[0].error.exception()
        if not found.comparisons:
            raise _unfitting("has no comparison of two different responses")
        judgment = found.comparisons[0].judgment
        return Check(info=info, judgment=judgment, latency_s=clock() - begun)

    def judge(
        self,
        question: Question,
        a: Response,
        b: Response,
        identifier: Identifier | None,
        criterion: Mapping[str, Any],
    ) -> Steps[SingleJudgment]:
        """Judges one comparison."""
        body = {**checked(criterion, Criterion), **comparison(question, a, b, identifier)}
        return self._read(SingleJudgment, Call("POST", "/judge", to_json(body), patient=True))

    def judging(
        self, criterion: Mapping[str, Any], in_flight: int
    ) -> Steps[Work[Judgment | ItemError]]:
        """Prepares the judging of many comparisons."""
        criterion = checked(criterion, Criterion)

        def ask(items: Sequence[Item]) -> Steps[list[Judgment | ItemError]]:
            results = yield from self._judge_items(items, criterion)
            return [result.outcome for result in results]

        return self._work("/judge/batch", ask, _item_error, in_flight)

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
        results = yield from self._judge_items(items, checked(criterion, Criterion))
        return [result.json for result in results]

    def _judge_items(
        self, items: Sequence[Item], criterion: Mapping[str, Any]
    ) -> Steps[list[_Result]]:
        """Judges items in one request, and again those with a passing error."""
        waits = Waits(self._session)
        places: Sequence[int] = range(len(items))
        merged: list[_Result] = []
        while True:
            body = body_of(criterion, "comparisons", (items[i] for i in places))
            answer = yield from self._session.exchange(Call("POST", "/judge/batch", body), waits)
            results = _results(answer, "results", len(places), _result)
            merged = merged or results
            for i, result in zip(places, results, strict=True):
                merged[i] = result
            passing = {i: error for i in places if (error := _passing(merged[i].outcome))}
            pause = waits.pause_after(next(iter(passing.values()))) if passing else None
            if pause is None:
                return merged
            places = list(passing)
            yield pause

    def rewards_of(self, group: Group, rule: Mapping[str, Any]) -> Steps[Rewards]:
        """Computes the rewards of one group."""
        fields = group_fields(group)
        kind = GroupRule if fields.get("reference") is None else ReferenceRule
        body = {**checked(rule, kind), **fields}
        path = "/rewards/group" if kind is GroupRule else "/rewards/reference"
        call = Call("POST", path, to_json(body), patient=True)
        rewards = yield from self._read(Rewards, call)
        return _fitting(rewards, len(body["responses"]))

    def rewarding(
        self, rule: Mapping[str, Any], in_flight: int
    ) -> Steps[Work[Rewards | ItemError]]:
        """Prepares the rewards of many groups."""
        rule = checked(rule, GroupRule)

        def ask(groups: Sequence[Item]) -> Steps[list[Rewards | ItemError]]:
            body = body_of(rule, "groups", groups)
            call = Call("POST", "/rewards/groups", body, patient=len(groups) == 1)
            answer = yield from self._session.exchange(call)
            found = _results(answer, "groups", len(groups), _group)
            return [_fitting_group(*both) for both in zip(found, groups, strict=True)]

        return self._work("/rewards/groups", ask, _item_error, in_flight)

    def calibration(
        self, name: str, alphas: Iterable[float], delta: float | None
    ) -> Steps[CalibrationDetail]:
        """Reads a calibration set, with the thresholds of further alphas."""
        query = {"alpha": list(alphas), **given_fields(delta=delta)}
        return self._read(CalibrationDetail, Call("GET", _with_query(_set_path(name), query)))

    def calibration_page(self, after: str) -> Steps[CalibrationPage]:
        """Lists calibration sets by name, after the name that an earlier page ended with."""
        page = yield from self._read(
            CalibrationPage, Call("GET", _with_query("/calibrations", {"after": after}))
        )
        if page.next_after is not None and page.next_after <= after:
            raise _unfitting("repeats a page of calibration sets")
        return page

    def versions(self, name: str, limit: int) -> Steps[Versions]:
        """Lists the changes of a set, newest first."""
        path = _with_query(f"{_set_path(name)}/versions", {"limit": limit})
        return self._read(Versions, Call("GET", path))

    def monitor(self, name: str) -> Steps[Monitor]:
        """Reads what audits show about a set."""
        return self._read(Monitor, Call("GET", f"{_set_path(name)}/monitor"))

    def rollback(self, name: str, version: int, *, dry_run: bool) -> Steps[RollbackReport]:
        """Restores an earlier version of a set, or says what that would do."""
        body = {"version": version, **({"dry_run": True} if dry_run else {})}
        path = f"{_set_path(name)}/rollback"
        call = Call("POST", path, to_json(body), idempotent=dry_run)
        return self._read(RollbackReport, call)

    def preview_deletion(self, name: str) -> Steps[Deletion]:
        """Says what the deletion of a set would do."""
        return self._read(Deletion, Call("DELETE", f"{_set_path(name)}?dry_run=true"))

    def delete_calibration(self, name: str) -> Steps[Any]:
        """Deletes a set."""
        return self.delete(_set_path(name))

    def next_to_label(
        self, name: str, alpha: float | None, delta: float | None, limit: int
    ) -> Steps[NextLabels]:
        """Reads which pairs to label next."""
        query = given_fields(alpha=alpha, delta=delta, limit=limit)
        return self._read(NextLabels, Call("GET", _with_query(f"{_set_path(name)}/next", query)))

    def pool(self, name: str, pairs: Iterable[Pair]) -> Steps[PoolReport]:
        """Adds pairs without labels, one request after the other."""
        items = [pair_item(pair, number) for number, pair in enumerate(pairs)]
        path = f"{_set_path(name)}/pool"

        def ask(some: Sequence[Item]) -> Steps[list[_Part]]:
            call = Call("POST", path, body_of({}, "comparisons", some))
            report = yield from self._read(PoolReport, call)
            if len(report.digests) != len(some):
                raise _unfitting("does not have a digest for each pair")
            return [_part(report, len(some))]

        return _merged_pool(items, (yield from self._parts(path, items, ask)))

    def calibrate(
        self, examples: Iterable[Example], common: Mapping[str, Any]
    ) -> Steps[CalibrationReport]:
        """Adds labeled examples, one request after the other, with `calibrate_fields`."""
        items = [example_item(example, number) for number, example in enumerate(examples)]

        def ask(some: Sequence[Item]) -> Steps[list[_Part]]:
            call = Call("POST", "/calibrate", body_of(common, "examples", some))
            return [_part((yield from self._read(CalibrationReport, call)), len(some))]

        return _merged(items, (yield from self._parts("/calibrate", items, ask)))

    def audit_page(
        self, calibration: str | None, status: str | None, after: int
    ) -> Steps[AuditPage]:
        """Lists audits, oldest first, after the place of an earlier page."""
        query = given_fields(
            calibration=calibration, status=status, after=after, limit=_MOST_AUDITS
        )
        page = yield from self._read(AuditPage, Call("GET", _with_query("/audits", query)))
        _check_progress(page, after)
        return page

    def audit_texts_page(self, calibration: str | None, after: int) -> Steps[AuditPage]:
        """Lists the pairs that this key labels next, after the place of an earlier page."""
        query = given_fields(calibration=calibration, texts="true", after=after)
        page = yield from self._read(AuditPage, Call("GET", _with_query("/audits", query)))
        _check_progress(page, after)
        return page

    def label_audits(self, labels: Mapping[str, Label]) -> Steps[AuditLabels]:
        """Sends labels, one request after the other."""
        return self._sent([{"id": audit, "label": label} for audit, label in labels.items()])

    def close_audits(self, reasons: Mapping[str, str]) -> Steps[AuditLabels]:
        """Closes audits, one request after the other."""
        return self._sent(
            [{"id": audit, "label": "none", "reason": why} for audit, why in reasons.items()]
        )

    def _sent(self, rows: Sequence[Mapping[str, str]]) -> Steps[AuditLabels]:
        reports: list[AuditLabels] = []
        for start in range(0, len(rows), _MOST_AUDITS):
            body = to_json({"labels": rows[start : start + _MOST_AUDITS]})
            call = Call("POST", "/audits/labels", body)
            reports.append((yield from self._read(AuditLabels, call)))
        return _merged_labels(reports)

    def audit_trail(self, name: str, before: int | None) -> Steps[AuditTrail]:
        """Lists the trail of a set's audits, newest first, before the place of an earlier page."""
        path = _with_query(f"{_set_path(name)}/audit-trail", given_fields(before=before))
        page = yield from self._read(AuditTrail, Call("GET", path))
        following = page.next_before
        if before is not None and following is not None and following >= before:
            raise _unfitting("repeats a page of the trail")
        return page

    def resume(self, name: str, reason: str) -> Steps[Resumed]:
        """Ends the alarms of a set."""
        call = Call("POST", f"{_set_path(name)}/resume", to_json({"reason": reason}))
        return self._read(Resumed, call)

    def absorb(self, name: str, asked: Absorption) -> Steps[AbsorbReport]:
        """Makes labeled audits examples of a set, or says what that would do."""
        call = Call("POST", f"{_set_path(name)}/absorb", to_json(dict(asked)))
        return self._read(AbsorbReport, call)

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
    return f"/calibrations/{quote(name, safe='', errors='replace')}"


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    text = urlencode(query, doseq=True)
    return f"{path}?{text}" if text else path


def _results(answer: Any, name: str, count: int, read: Callable[[Any], R]) -> list[R]:
    """The results of a batch; raises AnswerError if it does not have one for each item."""
    results = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(results, list) or len(results) != count:
        raise _unfitting(f"does not have one of `{name}` for each item")
    return [read(result) for result in results]


def _check_progress(page: AuditPage, after: int) -> None:
    """Refuses a page whose next one would not come after it."""
    if page.next_after is not None and page.next_after <= after:
        raise _unfitting("repeats a page of audits")


def _unfitting(what: str) -> AnswerError:
    return AnswerError(
        f"the answer {what}: check that the address is that of a scope-judge service",
        code="unexpected_answer",
    )


def _fitting(rewards: Rewards, responses: int) -> Rewards:
    """The rewards; raises AnswerError if they are not about so many responses."""
    lists = (rewards.rewards, rewards.reasons, rewards.accepted, rewards.compared)
    if any(len(column) != responses for column in (*lists, rewards.ties)):
        raise _unfitting("does not have a reward for each response")
    places = [(one.a, one.b) for one in rewards.errors]
    places += [(one.a, one.b) for one in rewards.comparisons or ()]
    if any(not 0 <= place < responses for pair in places for place in pair if place is not None):
        raise _unfitting("compares a response that the group does not have")
    return rewards


def _result(value: Any) -> _Result:
    is_error = isinstance(value, dict) and "error" in value
    return _Result(value, parse(ItemError, value) if is_error else parse(Judgment, value))


def _group(value: Any) -> Rewards | ItemError:
    if isinstance(value, dict) and "error" in value:
        return ItemError(id=None, error=parse(Problem, value["error"]))
    return parse(Rewards, value)


def _fitting_group(found: Rewards | ItemError, group: Item) -> Rewards | ItemError:
    return found if isinstance(found, ItemError) else _fitting(found, group.responses)


def _part(report: CalibrationReport | PoolReport, examples: int) -> _Part:
    """The report about so many examples; raises AnswerError if it has an error of another one."""
    if any(not 0 <= error.index < examples for error in report.errors):
        raise _unfitting("has an error of an example that was not sent")
    return _Part(examples, report)


def _failed_part(item: Item, error: ScopeError) -> _Part:
    return _Part(1, error)


def _passing(outcome: Judgment | ItemError) -> ScopeError | None:
    """The error after which the item may get a judgment; None for all other results."""
    if isinstance(outcome, ItemError) and outcome.error.status in _PASSING:
        return outcome.error.exception()
    return None


def _item_error(item: Item, error: ScopeError) -> ItemError:
    return ItemError(id=item.id, error=_problem(error))


def _problem(error: ScopeError) -> Problem:
    return Problem(code=error.code, detail=error.detail, status=error.status or 504)


def _merged(items: Sequence[Item], parts: Sequence[_Part]) -> CalibrationReport:
    """The last version of the set, with the counts and errors of all parts."""
    reports = [part.outcome for part in parts if isinstance(part.outcome, CalibrationReport)]
    errors = _errors(items, parts)
    return replace(
        reports[-1],
        added=sum(report.added for report in reports),
        updated=sum(report.updated for report in reports),
        ties=sum(report.ties for report in reports),
        removed=sum(report.removed for report in reports),
        failed=len(errors),
        errors=errors,
        usage=_total_usage(reports),
    )


def _total_usage(reports: Sequence[CalibrationReport] | Sequence[PoolReport]) -> RequestUsage:
    return RequestUsage(
        engine_prompts=sum(report.usage.engine_prompts for report in reports),
        prompt_tokens=sum(report.usage.prompt_tokens for report in reports),
    )


def _merged_pool(items: Sequence[Item], parts: Sequence[_Part]) -> PoolReport:
    """The last version of the set, with the counts, digests and errors of all parts."""
    reports = [part.outcome for part in parts if isinstance(part.outcome, PoolReport)]
    errors = _errors(items, parts)
    digests: list[str | None] = []
    for part in parts:
        outcome = part.outcome
        digests += outcome.digests if isinstance(outcome, PoolReport) else [None] * part.examples
    return replace(
        reports[-1],
        added=sum(report.added for report in reports),
        known=sum(report.known for report in reports),
        failed=len(errors),
        digests=tuple(digests),
        errors=errors,
        usage=_total_usage(reports),
    )


def _errors(items: Sequence[Item], parts: Sequence[_Part]) -> tuple[ExampleError, ...]:
    """The errors of all parts, with their places among all items.

    Raises:
        ScopeError: Every part failed completely.
    """
    errors: list[ExampleError] = []
    place = 0
    for part in parts:
        if isinstance(part.outcome, ScopeError):
            error = _problem(part.outcome)
            errors.append(ExampleError(index=place, id=items[place].id, error=error))
            if all(isinstance(part.outcome, ScopeError) for part in parts):
                raise part.outcome
        else:
            errors += [replace(error, index=place + error.index) for error in part.outcome.errors]
        place += part.examples
    return tuple(errors)


_LISTS_OF_LABELS = ("unknown_ids", "expired_ids", "earlier")


def _merged_labels(parts: Sequence[AuditLabels]) -> AuditLabels:
    """Adds the counts and joins the lists of several reports."""

    def total(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return sum(values, ()) if name in _LISTS_OF_LABELS else sum(values)

    return AuditLabels(**{field.name: total(field.name) for field in fields(AuditLabels)})
