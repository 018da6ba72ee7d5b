"""The methods of both clients: how each makes its requests and reads the answers."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from scope_judge import records
from scope_judge.batches import FIRST_SIZE, Asked, BatchSize, Cutter, Stream, Work
from scope_judge.comparisons import (
    Completion,
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
    group_item,
    pair_item,
    rows_of,
    to_json,
)
from scope_judge.errors import AnswerError, ConflictError, ScopeError
from scope_judge.exchange import Address, Call, OneGroup, Session, Steps, Waits
from scope_judge.methods import call, stream
from scope_judge.parsing import parse
from scope_judge.records import Identifier, ItemError, Judgment, Label, Rewards, Status

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

R = TypeVar("R")
Report = TypeVar("Report", records.CalibrationReport, records.PoolReport)

# Requests at a time: the service works on one while others are on their way.
IN_FLIGHT = 4
# After an error with one of these, the same comparison may get a judgment.
_PASSING = (429, 503)
# Each request of pairs makes a version of the set, so there are few.
_FIRST_PAIRS = 100
_PROBE: Group = ("Is the number 37 even or odd?", ["odd", "even"])
# The service takes so many labels of audits in one request, and lists so many audits.
_MOST_AUDITS = 1000
_MOST_EXAMPLES = 10_000


class Calls:
    """The calls of a service.

    Every one raises `ScopeError` if the service refuses the request or does not answer, and
    `TypeError` for inputs that are none. `name` is that of a calibration set, which is made if it
    is to be written and there is none; with `dry_run`, the result says what the call would do.
    """

    def __init__(
        self,
        url: str | None,
        api_key: str | None,
        patience_s: float | None,
        *,
        confirmed_only: bool,
    ) -> None:
        address = Address.of(url, api_key)
        self.url = address.url
        self._session = Session(address, patience_s=patience_s, confirmed_only=confirmed_only)
        self._info: records.Info | None = None
        # A call starts with the speed of the last one with the same path and limit.
        self._sizes: dict[tuple[str, int], BatchSize] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @call
    def info(self) -> Steps[records.Info]:
        """The judge, the defaults and the limits of the service."""
        return self._read_info()

    @call
    def check(self, **rule: "Unpack[GroupRule]") -> Steps[records.Check]:
        """Checks the address, the key, and the rule of rewards with one judged group.

        The service counts the group as traffic of the calibration set.

        Args:
            **rule: The rule of `group_rewards`.

        Raises:
            ScopeError: The service cannot be used so: nobody answers, it is another service, the
                key is unknown or lacks the role, there is no such calibration set, it belongs to
                another judge, or the rule has an impossible value.
        """
        clock = self._session.timing.monotonic
        info = yield from self._read_info()
        # The group is not in the format of a chat template.
        asked = {k: v for k, v in checked(rule, GroupRule).items() if k != "rendered"}
        begun = clock()
        found = yield from self._rewards_of(_PROBE, {**asked, "comparisons": True})
        if found.errors:
            raise found.errors[0].error.exception()
        if not found.comparisons:
            raise _unfitting("has no comparison of two different responses")
        judgment = found.comparisons[0].judgment
        return records.Check(info=info, judgment=judgment, latency_s=clock() - begun)

    @call
    def judge(
        self,
        question: Question,
        a: Response | None = None,
        b: Response | None = None,
        *,
        response_a: Response | None = None,
        response_b: Response | None = None,
        id: Identifier | None = None,
        explain: bool = False,
        **criterion: "Unpack[Criterion]",
    ) -> Steps[records.SingleJudgment]:
        """Judges which of two responses is better: "A", "B" or "abstain".

        An error is never an abstention, and an abstention is never an error.

        Args:
            question: A text, or messages with `role` and `content`.
            a: Response A: a text, or one text for each turn of a conversation.
            b: Response B, in the form of response A.
            response_a: Response A by its name in the service, instead of `a`.
            response_b: Response B, likewise.
            id: Comes back in the judgment.
            explain: Whether the judge also explains its preference, which takes longer.
            **criterion: `alpha`, the largest share of wrong verdicts among the accepted ones (None
                accepts every verdict and guarantees nothing); `guarantee`, "marginal" or "pac";
                `delta`, the probability that a "pac" guarantee fails; `calibration`, the name of
                the calibration set. By default each is the service's.
        """
        if (a is None) == (response_a is None) or (b is None) == (response_b is None):
            raise TypeError("give both responses: (question, a, b), or response_a= and response_b=")
        first: Any = response_a if a is None else a
        second: Any = response_b if b is None else b
        body = {**checked(criterion, Criterion), **comparison(question, first, second, id)}
        if explain:
            body["explain"] = True
        return self._read(
            records.SingleJudgment, Call("POST", "/judge", to_json(body), patient=True)
        )

    @stream
    def judge_many(
        self,
        pairs: Iterable[Pair],
        **criterion: "Unpack[Criterion]",
    ) -> Stream[Judgment | ItemError]:
        """Judges any number of pairs, and yields one result for each, in order.

        A result is a judgment, or the error of this pair, which is not a verdict. Pairs are read
        when there is room for them, and nothing is sent before the first result is asked for.
        Batches have a size that takes the service a few seconds, which the client learns by its
        first calls. One that is too slow or too large is split.

        Args:
            pairs: Each is (question, a, b), or a mapping with the fields of POST /judge except
                `explain`, whose criterion overrides the arguments. Or a pandas DataFrame with the
                columns question, response_a and response_b.
            **criterion: The criterion of every pair, as in `judge`.
        """
        given = checked(criterion, Criterion)
        ask = partial(self._judged, criterion=given)
        rows = rows_of(pairs, "calibration")
        return Stream(self._work("/judge/batch", ask), rows, pair_item)

    @call
    def rewards(
        self, question: Question, responses: Sequence[Completion], **rule: "Unpack[GroupRule]"
    ) -> Steps[list[float | None]]:
        """The rewards of the responses to one question, in order, as in `group_rewards`.

        None is a missing reward: no comparison of the response was accepted. It is not 0, which
        says that a response won as often as it lost. The guarantee is about comparisons, not about
        rewards.
        """
        found: Rewards = yield OneGroup((question, responses), checked(rule, GroupRule))
        return list(found.rewards)

    @call
    def group_rewards(
        self, question: Question, responses: Sequence[Completion], **rule: "Unpack[GroupRule]"
    ) -> Steps[Rewards]:
        """Compares the responses to one question with each other and rewards each.

        Args:
            question: A text, or messages with `role` and `content`.
            responses: Each is a text, or a message of the assistant, or a list with one. A single
                response has nothing to be compared with, and no reward.
            **rule: `opponents`, the number of other responses that each response meets, or "all";
                `reward`, the points of an accepted comparison, "hard" for +1 or -1 or "soft" for
                2 p_bar - 1; `empty`, "loses" if an empty response loses against every text, or
                "null" if it gets no reward; `rendered`, whether the texts have the format of the
                policy's chat template; `comparisons`, whether the result has every judgment; and
                the criterion as in `judge`.
        """
        found: Rewards = yield OneGroup((question, responses), checked(rule, GroupRule))
        return found

    @call
    def best_pair(
        self, question: Question, responses: Sequence[Completion], **rule: "Unpack[GroupRule]"
    ) -> Steps[tuple[int, int] | None]:
        """The indices of a better and a worse response, for preference data, or None.

        The arguments are those of `group_rewards`, and the pair is `Rewards.best_pair`.
        """
        given = {**checked(rule, GroupRule), "comparisons": True}
        found: Rewards = yield OneGroup((question, responses), given)
        return found.best_pair

    @call
    def reference_rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        reference: Completion,
        **rule: "Unpack[ReferenceRule]",
    ) -> Steps[Rewards]:
        """Compares each of the responses to one question with a reference and rewards it.

        The arguments are those of `group_rewards`.
        """
        group = (question, responses, reference)
        found: Rewards = yield OneGroup(group, checked(rule, ReferenceRule))
        return found

    @stream
    def rewards_many(
        self,
        groups: Iterable[Group],
        **rule: "Unpack[GroupRule]",
    ) -> Stream[Rewards | ItemError]:
        """Rewards any number of groups, and yields one result for each, in order.

        A result has the rewards, or is the error of this group. Batches are made as by
        `judge_many`.

        Args:
            groups: Each is (question, responses), or (question, responses, reference) to compare
                the responses with a reference, or a mapping with these names.
            **rule: The rule of every group, as in `group_rewards`.
        """
        item = partial(group_item, opponents=rule.get("opponents", "all"))
        return Stream(self._rewarding(checked(rule, GroupRule)), groups, item)

    @call
    def calibrate(
        self, name: str, examples: Iterable[Example], *, change_labels: bool = True
    ) -> Steps[records.CalibrationReport]:
        """Adds labeled pairs to a set, in one version, or in a few if they are too large for one.

        All pairs are judged first; after an error, the set is unchanged. The service recognizes a
        pair by its digest, so that it never counts twice. The `usage` of the report is that of
        adding alone.

        Args:
            examples: Each is (question, a, b, label), or a mapping with question, response_a,
                response_b and label. Or a pandas DataFrame with these columns, of which rows
                without a label are left out. A label is "A", "B" or "tie".
            change_labels: Whether the new label of a pair counts if the set has another one; the
                report says how many. If not, such a batch is refused.

        Raises:
            ConflictError: A pair has two labels in `examples` (`labels_differ`), or the set belongs
                to another judge.
        """
        rows = list(rows_of(examples, labeled=True))
        numbers = [n for n, row in enumerate(rows) if row is not None]
        items = [example_item(rows[n], n) for n in numbers]
        info = yield from self._read_info()
        ask = partial(self._scored, calibration=name)
        work = yield from self._work("/calibrate/scores", ask, in_flight=1)
        results = yield from _one_by_one(work, items)
        numbered = list(zip(numbers, results, strict=True))
        scores = {n: each for n, each in numbered if not isinstance(each, ItemError)}
        errors = [
            records.ExampleError(index=n, id=each.id, error=each.error)
            for n, each in numbered
            if isinstance(each, ItemError)
        ]
        if errors and not scores:
            raise errors[0].error.exception()
        _refuse_two_labels(scores)
        report = yield from self._add_scores(
            name,
            [*scores.values()],
            {"fingerprint": info.fingerprint, "judge": info.judge, "change_labels": change_labels},
        )
        return dataclasses.replace(report, failed=len(errors), errors=tuple(errors))

    @stream
    def score_many(
        self,
        examples: Iterable[Example],
        *,
        calibration: str = "default",
    ) -> Stream[records.ScoredExample | ItemError]:
        """Judges labeled pairs for a set, and yields the score or the error of each, in order.

        `add_scores` adds the scores to the set. So a set changes once, and not while pairs are
        judged, as by `calibrate`.

        Args:
            examples: As in `calibrate`, but not a DataFrame.
            calibration: Name of the set that the scores are for.
        """
        ask = partial(self._scored, calibration=calibration)
        return Stream(self._work("/calibrate/scores", ask), examples, example_item)

    @call
    def add_scores(
        self,
        name: str,
        examples: Sequence[records.ScoredExample],
        *,
        fingerprint: str,
        judge: str | None = None,
        replace: bool = False,
        change_labels: bool = True,
        even_if_infeasible: bool = False,
        dry_run: bool = False,
    ) -> Steps[records.CalibrationReport]:
        """Adds judged examples to a set, in one version, or in a few if they are too large for one.

        Args:
            examples: Scores of `score_many` or `examples`.
            fingerprint: Fingerprint of the judge that scored them, which must be the service's.
            judge: Name of that judge.
            replace: Whether all other examples of the set are removed. The request is then sent
                once: sent again, it would remove what others have added meanwhile.
            change_labels: As in `calibrate`.
            even_if_infeasible: Replace them even if an alpha in use gets no more verdicts.
        """
        wanted = {
            "replace": replace,
            "even_if_infeasible": even_if_infeasible,
            "dry_run": dry_run,
        }
        common = {
            "judge": judge,
            "fingerprint": fingerprint,
            "change_labels": change_labels,
            **{option: True for option, is_wanted in wanted.items() if is_wanted},
        }
        return self._add_scores(name, examples, common)

    def _add_scores(
        self, name: str, examples: Sequence[records.ScoredExample], common: Mapping[str, Any]
    ) -> Steps[records.CalibrationReport]:
        once = "replace" in common
        info = self._info or (yield from self._read_info())
        items = [Item(to_json(asdict(example))) for example in examples]
        batches: list[Sequence[Item]] = [items]
        if not once and "dry_run" not in common:
            cutter = Cutter(BatchSize(len(items), len(items)), info.limits.max_body_bytes)
            batches = [*(full for item in items if (full := cutter.add(item))), cutter.rest()]
        parts: list[tuple[int, records.CalibrationReport]] = []
        for batch in batches:
            body = body_of(common, "examples", batch)
            path = _set_path(name, "/examples")
            report = yield from self._post(
                records.CalibrationReport, path, body, idempotent=not once
            )
            parts.append((len(batch), report))
        return _merged(parts)

    @call
    def examples(self, name: str, *, most: int | None = None) -> Steps[records.ExamplePage]:
        """All examples of one version of a set, sorted by digest, with their scores and labels.

        Args:
            most: Most examples. The first ones of a larger set are a random sample of it.

        Raises:
            ConflictError: The set has changed while it was read (`version_changed`).
        """
        first = page = yield from self._example_page(name, most, after=None)
        rows = list(first.examples)
        wanted = first.n if most is None else min(first.n, most)
        while page.examples and len(rows) < wanted:
            page = yield from self._example_page(name, most, after=rows[-1].digest)
            if page.version != first.version:
                raise ConflictError(
                    f"{name} has changed while it was read: read it again", code="version_changed"
                )
            rows += page.examples
        return dataclasses.replace(first, examples=tuple(rows[:most]))

    def _example_page(
        self, name: str, most: int | None, after: str | None
    ) -> Steps[records.ExamplePage]:
        limit = min(most or _MOST_EXAMPLES, _MOST_EXAMPLES)
        path = _set_path(name, "/examples")
        return self._get(records.ExamplePage, path, limit=limit, after=after)

    @stream
    def score_pairs(self, pairs: Iterable[Pair]) -> Stream[records.PairScore]:
        """Scores pairs without labels, and yields a score for each, in order; no set changes.

        Args:
            pairs: As in `judge_many`, without a criterion.
        """

        def ask(items: Sequence[Item]) -> Steps[list[records.PairScore]]:
            body = body_of({}, "comparisons", items)
            answer = yield from self._post(records.PairScores, "/scores", body)
            if len(answer.scores) != len(items):
                raise _unfitting("does not have a score for each pair")
            return list(answer.scores)

        work = self._work("/scores", ask, failed=_unscored)
        return Stream(work, pairs, pair_item)

    @call
    def plan_cascade(
        self,
        name: str,
        pairs: Iterable[tuple[records.JudgeScore, records.PairScore]],
        *,
        small: str,
        large: str,
        alpha: float,
        share: float | None = None,
        dry_run: bool = False,
    ) -> Steps[records.CascadePlan]:
        """Fixes what a cascade needs before its first label, as the first version of a set.

        Sent once: a second plan of the same set is refused.

        Args:
            pairs: The scores of the small and of the large judge on each of at least 1,000 pairs,
                which are not those that are labeled afterwards.
            small: Fingerprint of the small judge.
            large: Fingerprint of the large judge.
            alpha: Alpha that the cascade is for.
            share: Share of the pairs that the small judge may decide; by default by contradictions.
        """
        scores = [{"small": _numbers(one), "large": _numbers(other)} for one, other in pairs]
        body = {"small": small, "large": large, "alpha": alpha, "share": share, "pairs": scores}
        path = _set_path(name, "/cascade")
        return self._post(
            records.CascadePlan, path, {**body, "dry_run": dry_run}, idempotent=dry_run
        )

    @call
    def pool(
        self,
        name: str,
        pairs: Iterable[Pair],
        *,
        alpha: float | None = None,
        delta: float | None = None,
        even_if_infeasible: bool = False,
    ) -> Steps[records.PoolReport]:
        """Adds pairs without labels to a calibration set; `next_to_label` says which to label.

        A pair that the set has keeps its label, so a repeated request changes nothing.

        Args:
            pairs: Each is (question, a, b), or a mapping with question, response_a, response_b.
            alpha: The alpha to label for: a new set with too few pairs for its first test is
                refused.
            delta: The delta to label for; by default the service's.
            even_if_infeasible: Add pairs even if the set gives verdicts, which ends them.
        """
        items = [pair_item(pair, number) for number, pair in enumerate(pairs)]
        path = _set_path(name, "/pool")
        rule = given_fields(alpha=alpha, delta=delta, even_if_infeasible=even_if_infeasible or None)

        def ask(some: Sequence[Item]) -> Steps[list[tuple[int, records.PoolReport]]]:
            body = body_of(rule, "comparisons", some)
            report = yield from self._post(records.PoolReport, path, body)
            _check_places(report.errors, len(some))
            if len(report.digests) != len(some):
                raise _unfitting("does not have a digest for each pair")
            return [(len(some), report)]

        work = yield from self._work(
            path,
            ask,
            in_flight=1,
            failed=_raise,
            # A pool that must not be too small is sent as a whole.
            first_size=_FIRST_PAIRS if alpha is None else len(items),
        )
        return _merged((yield from _one_by_one(work, items)))

    @call
    def next_to_label(
        self,
        name: str = "default",
        *,
        alpha: float | None = None,
        delta: float | None = None,
        limit: int = 100,
    ) -> Steps[records.NextLabels]:
        """The pairs of a pool to label next, or the threshold once the labels decide it.

        Add the labels with `calibrate`, and ask again until `complete`.

        Args:
            alpha: Alpha to label for, chosen before the first label; by default that of the
                service.
            delta: Delta to label for, likewise.
            limit: Most pairs, from 1 to 10,000.
        """
        path = _set_path(name, "/next")
        return self._get(records.NextLabels, path, alpha=alpha, delta=delta, limit=limit)

    @call
    def calibration(
        self, name: str = "default", *, alphas: Iterable[float] = (), delta: float | None = None
    ) -> Steps[records.CalibrationDetail]:
        """A calibration set with its thresholds and its risk-coverage curve.

        Args:
            alphas: Alphas whose "pac" thresholds the result has as `requested`.
            delta: Probability that each of them fails; by default the service's. Divide it by the
                number of alphas if you choose one of them after seeing all.
        """
        path, query = _set_path(name), {"alpha": list(alphas), "delta": delta}
        return self._get(records.CalibrationDetail, path, **query)

    @call
    def calibrations(self) -> Steps[tuple[records.Calibration, ...]]:
        """The calibration sets that the key may use, by name."""
        return self._pages(records.CalibrationPage, "/calibrations", {}, "calibrations")

    @call
    def versions(self, name: str, *, limit: int = 100) -> Steps[tuple[records.Version, ...]]:
        """The last changes of a calibration set, newest first; `limit` is from 1 to 1,000."""
        page = yield from self._get(records.Versions, _set_path(name, "/versions"), limit=limit)
        return page.versions

    @call
    def monitor(self, name: str = "default") -> Steps[records.Monitor]:
        """Reads what audits and drift show about a calibration set."""
        return self._get(records.Monitor, _set_path(name, "/monitor"))

    @call
    def rollback(
        self, name: str, version: int, *, dry_run: bool = False
    ) -> Steps[records.CalibrationChange]:
        """Restores an earlier version of a set, which may be deleted, as a new one.

        If the connection breaks before the answer, the change may have been made, and is not sent
        again.
        """
        body = {"version": version, "dry_run": dry_run}
        path = _set_path(name, "/rollback")
        return self._post(records.CalibrationChange, path, body, idempotent=dry_run)

    @call
    def preview_deletion(self, name: str) -> Steps[records.Deletion]:
        """Reads what the deletion of a calibration set would do."""
        return self._read(records.Deletion, Call("DELETE", f"{_set_path(name)}?dry_run=true"))

    @call
    def delete_calibration(self, name: str) -> Steps[None]:
        """Deletes a calibration set, which `rollback` can restore; sent once, as that is."""
        yield from self._session.exchange(Call("DELETE", _set_path(name), idempotent=False))

    @call
    def audits(
        self,
        calibration: str | None = None,
        *,
        status: Status | None = None,
        texts: bool = False,
    ) -> Steps[tuple[records.Audit, ...]]:
        """The judgments that were drawn for an audit, oldest first.

        Args:
            calibration: Only audits of this calibration set; by default of all sets that the key
                may use.
            status: Only audits that are "open", "labelled", "closed" or "expired".
            texts: Only open audits whose texts the service keeps (SCOPE_AUDIT_TEXTS), in an order
                that depends on the key, and with a random response as response A. The key needs
                the role `label` or `calibrate`.
        """
        query = {"calibration": calibration, "status": status}
        more = {"texts": "true"} if texts else {"limit": _MOST_AUDITS}
        return self._pages(records.AuditPage, "/audits", {**query, **more}, "audits")

    @call
    def label_audits(self, labels: Mapping[str, Label]) -> Steps[records.AuditLabels]:
        """Labels judgments that were drawn for an audit; returns counts, and ids that are refused.

        The first label of an audit counts, and sending it again changes nothing. The key that gave
        it can correct it, and so can a key with the role `admin`. One request has at most 1,000
        labels; after an error, labels of earlier requests were taken.

        Args:
            labels: The id of each audit, from `Judgment.audit` or `audits`, and its label: "A", "B"
                or "tie", in the order of the responses that was judged.
        """
        return self._labeled([{"id": audit, "label": label} for audit, label in labels.items()])

    @call
    def close_audits(self, reasons: Mapping[str, str]) -> Steps[records.AuditLabels]:
        """Closes audits that nobody can label, so that other labels do not wait for them.

        A closed audit counts as right for the alarm, and as an error for the certificate. It may
        still be labeled later.

        Args:
            reasons: The id of each audit, and why it cannot be labeled, in at most 200 characters.
        """
        return self._labeled(
            [{"id": audit, "label": "none", "reason": why} for audit, why in reasons.items()]
        )

    @call
    def audit_trail(self, name: str, *, limit: int = 100) -> Steps[tuple[records.AuditEvent, ...]]:
        """The last alarms, their ends, changed labels and closed audits of a set, newest first."""
        page = yield from self._get(
            records.AuditTrail, _set_path(name, "/audit-trail"), limit=limit
        )
        return page.entries

    @call
    def resume(self, name: str, reason: str) -> Steps[tuple[records.EndedAlarm, ...]]:
        """Ends the alarms of a set, so that its verdicts are accepted again; returns them.

        The audits of their criteria start over. It is sent once, as `rollback` is.

        Args:
            reason: Why the verdicts can be used again, in at most 200 characters.
        """
        body, path = {"reason": reason}, _set_path(name, "/resume")
        return (yield from self._post(records.Resumed, path, body, idempotent=False)).resumed

    @call
    def absorb(
        self, name: str, *, even_if_infeasible: bool = False, dry_run: bool = False
    ) -> Steps[records.AbsorbReport]:
        """Makes labeled audits examples of a calibration set, in one new version.

        After an alarm, the first audits since then replace all examples; `recovery` of the monitor
        has their number. Without an alarm, those up to the first open one are added.

        Args:
            even_if_infeasible: Absorb even if an alpha in use gets no more verdicts.
        """
        body = {"even_if_infeasible": even_if_infeasible, "dry_run": dry_run}
        return self._post(records.AbsorbReport, _set_path(name, "/absorb"), body)

    def _read(self, kind: type[R], asked: Call) -> Steps[R]:
        """Sends a request and reads the answer into a dataclass."""
        return parse(kind, (yield from self._session.exchange(asked)))

    def _get(self, kind: type[R], path: str, **query: Any) -> Steps[R]:
        """Reads a path; parameters of the query that are None are left out."""
        text = urlencode(given_fields(**query), doseq=True)
        return self._read(kind, Call("GET", f"{path}?{text}" if text else path))

    def _post(self, kind: type[R], path: str, body: Any, *, idempotent: bool = True) -> Steps[R]:
        content = body if isinstance(body, bytes) else to_json(body)
        return self._read(kind, Call("POST", path, content, idempotent))

    def _read_info(self) -> Steps[records.Info]:
        self._info = yield from self._get(records.Info, "/info")
        return self._info

    def _pages(
        self, kind: type[Any], path: str, query: Mapping[str, Any], rows: str
    ) -> Steps[tuple[Any, ...]]:
        """Reads all pages, each of which begins after the place of the last one."""
        found: list[Any] = []
        place: Any = None
        while True:
            page: Any = yield from self._get(kind, path, **query, after=place)
            found += getattr(page, rows)
            last, place = place, page.next_after
            if place is None:
                return tuple(found)
            if last is not None and place <= last:
                raise _unfitting("repeats a page")

    def _work(
        self,
        path: str,
        ask: Asked[R],
        *,
        in_flight: int | None = None,
        failed: Callable[[Item, ScopeError], Any] | None = None,
        first_size: int | None = None,
    ) -> Steps[Work[R]]:
        limits = (self._info or (yield from self._read_info())).limits
        in_flight = max(1, min(in_flight or IN_FLIGHT, limits.max_batch))
        # All batches together hold no more than one request may have: the service admits at least
        # that much at a time, so this client alone never overloads it.
        most = limits.max_batch // in_flight
        return Work(
            ask,
            failed or _item_error,
            size=self._sizes.setdefault((path, most), BatchSize(most, first_size or FIRST_SIZE)),
            max_body_bytes=limits.max_body_bytes,
            in_flight=in_flight,
            clock=self._session.timing.monotonic,
        )

    def _judged(
        self, items: Sequence[Item], *, criterion: Mapping[str, Any]
    ) -> Steps[list[Judgment | ItemError]]:
        """Judges items in one request, and again those with a passing error."""
        waits = Waits(self._session)
        places: Sequence[int] = range(len(items))
        merged: list[Judgment | ItemError] = []
        while True:
            body = body_of(criterion, "comparisons", (items[i] for i in places))
            answer = yield from self._session.exchange(Call("POST", "/judge/batch", body), waits)
            results = _results(answer, "results", len(places), Judgment)
            merged = merged or results
            for i, result in zip(places, results, strict=True):
                merged[i] = result
            passing = {i: error for i in places if (error := _passing(merged[i]))}
            pause = waits.pause_after(next(iter(passing.values()))) if passing else None
            if pause is None:
                return merged
            places = list(passing)
            yield pause

    def _scored(
        self, items: Sequence[Item], *, calibration: str
    ) -> Steps[list[records.ScoredExample | ItemError]]:
        body = body_of({"calibration": calibration}, "examples", items)
        try:
            answer = yield from self._post(records.Scores, "/calibrate/scores", body)
        except ScopeError as exc:
            # Every item of the request has failed, such as a last one that is alone.
            if exc.code != "judgment_failed":
                raise
            return [_item_error(item, exc) for item in items]
        if self._info is not None and answer.fingerprint != self._info.fingerprint:
            raise ConflictError(
                "the judge of the service has changed since the beginning of this run",
                code="judge_mismatch",
            )
        _check_places(answer.errors, len(items))
        errors = {each.index: each for each in answer.errors}
        if len(errors) + len(answer.scores) != len(items):
            raise _unfitting("does not have one score for each judged pair")
        scores = iter(answer.scores)
        return [
            ItemError(id=item.id, error=errors[i].error) if i in errors else next(scores)
            for i, item in enumerate(items)
        ]

    def _rewards_of(self, group: Group, rule: Mapping[str, Any]) -> Steps[Rewards]:
        """Computes the rewards of one group."""
        given = group_fields(group)
        kind = GroupRule if given.get("reference") is None else ReferenceRule
        body = {**checked(rule, kind), **given}
        path = "/rewards/group" if kind is GroupRule else "/rewards/reference"
        posted = Call("POST", path, to_json(body), patient=True)
        rewards = yield from self._read(Rewards, posted)
        return _fitting(rewards, len(body["responses"]))

    def _rewarding(self, rule: Mapping[str, Any]) -> Steps[Work[Rewards | ItemError]]:
        def ask(groups: Sequence[Item]) -> Steps[list[Rewards | ItemError]]:
            body = body_of(rule, "groups", groups)
            posted = Call("POST", "/rewards/groups", body, patient=len(groups) == 1)
            answer = yield from self._session.exchange(posted)
            found = _results(answer, "groups", len(groups), Rewards)
            return [
                each if isinstance(each, ItemError) else _fitting(each, group.responses)
                for each, group in zip(found, groups, strict=True)
            ]

        return self._work("/rewards/groups", ask)

    def _labeled(self, rows: Sequence[Mapping[str, str]]) -> Steps[records.AuditLabels]:
        """Sends labels, one request after the other, and adds up the reports."""
        reports: list[records.AuditLabels] = []
        for start in range(0, len(rows), _MOST_AUDITS):
            body = {"labels": rows[start : start + _MOST_AUDITS]}
            reports.append((yield from self._post(records.AuditLabels, "/audits/labels", body)))

        def total(name: str) -> Any:
            values = [getattr(report, name) for report in reports]
            is_list = name in ("unknown_ids", "expired_ids", "earlier")
            return sum(values, ()) if is_list else sum(values)

        return records.AuditLabels(
            **{each.name: total(each.name) for each in fields(records.AuditLabels)}
        )


def _one_by_one(work: Work[R], items: Iterable[Item]) -> Steps[list[R]]:
    """Sends items in as many requests as they need, one after the other."""
    for item in items:
        if batch := work.cutter.add(item):
            yield from work.steps(batch)
    yield from work.steps(work.cutter.rest())
    results: list[R] = []
    while some := work.take():
        results += some
    return results


def _refuse_two_labels(scores: Mapping[int, records.ScoredExample]) -> None:
    """Raises ConflictError for a pair with two labels, in either order of its responses."""
    first: dict[str, tuple[int, str | None]] = {}
    for number, score in scores.items():
        label: str | None = score.label
        if score.is_reversed:
            label = {"A": "B", "B": "A"}.get(label or "", label)
        before, other = first.setdefault(score.digest, (number, label))
        if other != label:
            raise ConflictError(
                f"numbers {before} and {number} are one pair with different labels: correct them",
                code="labels_differ",
            )


def _set_path(name: str, below: str = "") -> str:
    return f"/calibrations/{quote(name, safe='', errors='replace')}{below}"


def _unfitting(what: str) -> AnswerError:
    return AnswerError(
        f"the answer {what}: check that the address is that of a scope-judge service",
        code="unexpected_answer",
    )


def _results(answer: Any, name: str, count: int, kind: type[R]) -> list[R | ItemError]:
    """The results of a batch; raises AnswerError if it does not have one for each item."""
    results = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(results, list) or len(results) != count:
        raise _unfitting(f"does not have one of `{name}` for each item")
    return [
        parse(ItemError, result)
        if isinstance(result, dict) and "error" in result
        else parse(kind, result)
        for result in results
    ]


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


def _check_places(errors: Iterable[records.ExampleError], examples: int) -> None:
    """Refuses an answer with an error of another example than the sent ones."""
    if any(not 0 <= error.index < examples for error in errors):
        raise _unfitting("has an error of an example that was not sent")


def _passing(outcome: Judgment | ItemError) -> ScopeError | None:
    """The error after which the item may get a judgment; None for all other results."""
    if isinstance(outcome, ItemError) and outcome.error.status in _PASSING:
        return outcome.error.exception()
    return None


def _item_error(item: Item, error: ScopeError) -> ItemError:
    return ItemError(id=item.id, error=_problem(error))


def _unscored(item: Item, error: ScopeError) -> records.PairScore:
    return records.PairScore(gap_fwd=None, gap_rev=None, label_mass=None, error=_problem(error))


def _numbers(score: records.JudgeScore) -> dict[str, float | None]:
    return {name: getattr(score, name) for name in ("gap_fwd", "gap_rev", "label_mass")}


def _problem(error: ScopeError) -> records.Problem:
    return records.Problem(code=error.code, detail=error.detail, status=error.status or 504)


def _raise(item: Item, error: ScopeError) -> Any:
    raise error


_COUNTS = ("added", "updated", "known", "ties", "removed", "changed_labels")


def _merged(parts: Sequence[tuple[int, Report]]) -> Report:
    """The report of the last version, with the counts, errors and digests of all parts.

    Args:
        parts: Number of the items of each request, and its report.
    """
    errors, place = list[records.ExampleError](), 0
    for size, report in parts:
        errors += [dataclasses.replace(each, index=place + each.index) for each in report.errors]
        place += size
    reports = [report for _, report in parts]
    last = reports[-1]
    more: dict[str, Any] = {
        name: sum(getattr(report, name) for report in reports)
        for name in _COUNTS
        if hasattr(last, name)
    }
    if isinstance(last, records.PoolReport):
        more["digests"] = tuple(digest for report in reports for digest in report.digests)
    return dataclasses.replace(
        last,
        failed=len(errors),
        errors=tuple(errors),
        usage=records.RequestUsage(
            engine_prompts=sum(report.usage.engine_prompts for report in reports),
            prompt_tokens=sum(report.usage.prompt_tokens for report in reports),
        ),
        **more,
    )
