"""The synchronous client."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from scope_judge.address import Address
from scope_judge.batches import Batch, Work
from scope_judge.comparisons import (
    Absorption,
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
    group_item,
    pair_item,
    two_responses,
)
from scope_judge.exchange import Session, Steps, Timing
from scope_judge.progress import Bar
from scope_judge.records import (
    AbsorbReport,
    Audit,
    AuditEvent,
    AuditLabels,
    Calibration,
    CalibrationDetail,
    CalibrationReport,
    Check,
    Deletion,
    EndedAlarm,
    Identifier,
    Info,
    ItemError,
    Judgment,
    Label,
    Monitor,
    NextLabels,
    PoolReport,
    Rewards,
    RollbackReport,
    SingleJudgment,
    Status,
    Version,
)
from scope_judge.service import Service
from scope_judge.transport import IN_FLIGHT, TIMEOUT_S, OnWait, SyncTransport, log_wait

if TYPE_CHECKING:
    # Part of `typing` from Python 3.11 on.
    from typing_extensions import Unpack

R = TypeVar("R")
T = TypeVar("T")


class ScopeClient:
    """A client of a scope-judge service. Several threads can share it.

    A request is repeated after a 429, a 503, a timeout or a broken connection, and never after
    another error.
    Judging and rewards change nothing in the service, so a repetition counts nothing twice.

    Args:
        url: Address of the service. By default SCOPE_URL of the environment, or else
            http://127.0.0.1:8000.
        api_key: The key, if the service needs one. By default SCOPE_API_KEY of the environment.
        timeout_s: Longest time without an answer to one try, and longest time that the rest of an
            answer may take once it has begun; longer than the service's own timeout
            (SCOPE_TIMEOUT_S), which ends in a clearer error.
        patience_s: How long a request is repeated. By default 600 s, but not at all while no
            service has ever answered this client: the address is then probably wrong.
        on_wait: Receives each pause before a repetition; by default it is logged as a warning.
        confirmed_only: Whether an answer whose thresholds the calibration store has not confirmed
            is asked for again, as after a 503: for results that are read much later.
        sleep: Waits some seconds, for tests.
        timing: Clocks and chance, for tests.

    Raises:
        ValueError: The address or the key cannot be one.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        patience_s: float | None = None,
        on_wait: OnWait = log_wait,
        confirmed_only: bool = False,
        sleep: Callable[[float], None] | None = None,
        timing: Timing | None = None,
    ) -> None:
        address = Address.of(url, api_key)
        self.url = address.url
        session = Session(address, timing or Timing(), patience_s, confirmed_only=confirmed_only)
        self._service = Service(session)
        self._transport = SyncTransport(
            address, timeout_s, on_wait, sleep, session.timing.monotonic
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> "ScopeClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def get(self, path: str) -> Any:
        """Sends GET to a path and returns the JSON of the answer; raises ScopeError."""
        return self._transport.run(self._service.get(path))

    def post(self, path: str, body: Any, *, idempotent: bool) -> Any:
        """Sends JSON to a path and returns the JSON of the answer.

        Args:
            path: Path below the address of the service.
            body: Value that JSON can express.
            idempotent: Whether the request may be sent again if the connection breaks before the
                answer, when it is unknown whether the service has worked on it.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        return self._transport.run(self._service.post(path, body, idempotent=idempotent))

    def delete(self, path: str) -> Any:
        """Sends DELETE to a path; returns the JSON of the answer, or None; raises ScopeError.

        It is not sent again if the connection breaks: somebody may have made the thing again.
        """
        return self._transport.run(self._service.delete(path))

    def judge_batch(
        self, comparisons: Sequence[Mapping[str, Any]], **criterion: "Unpack[Criterion]"
    ) -> list[dict[str, Any]]:
        """Judges comparisons in one request, and again those whose error may pass.

        Args:
            comparisons: Each has the fields of POST /judge.
            **criterion: The criterion of every comparison without one, as in `judge`.

        Returns:
            For each comparison, in order, the JSON of its judgment or of its `error`.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
            TypeError: A comparison has no question and responses, or JSON cannot express it.
        """
        return self._transport.run(self._service.judge_batch(comparisons, criterion))

    def info(self) -> Info:
        """The judge, the defaults and the limits of the service; raises ScopeError."""
        return self._transport.run(self._service.info())

    def check(self, **rule: "Unpack[GroupRule]") -> Check:
        """Checks the address, the key, and the rule of rewards with one judged group.

        The service counts the group as traffic of the calibration set.

        Args:
            **rule: The rule of `group_rewards`.

        Raises:
            ScopeError: The service cannot be used so: nobody answers, it is another service, the
                key is unknown or lacks the role, there is no such calibration set, it belongs to
                another judge, or the rule has an impossible value.
        """
        return self._transport.run(self._service.check(rule))

    def judge(
        self,
        question: Question,
        a: Response | None = None,
        b: Response | None = None,
        *,
        response_a: Response | None = None,
        response_b: Response | None = None,
        id: Identifier | None = None,
        **criterion: "Unpack[Criterion]",
    ) -> SingleJudgment:
        """Judges which of two responses is better: "A", "B" or "abstain".

        Args:
            question: A text, or messages with `role` and `content`.
            a: Response A: a text, or one text for each turn of a conversation.
            b: Response B, in the form of response A.
            response_a: Response A by its name in the service, instead of `a`.
            response_b: Response B, likewise.
            id: Comes back in the judgment.
            **criterion: `alpha`, the largest share of wrong verdicts among the accepted ones (None
                accepts every verdict and guarantees nothing); `guarantee`, "marginal" or "pac";
                `delta`, the probability that a "pac" guarantee fails; `calibration`, the name of
                the calibration set. By default each is the service's.

        Raises:
            ScopeError: There is no judgment, also because of an error of the pair itself. An error
                is never an abstention, and an abstention is never an error.
            TypeError: A response is missing or given twice.
        """
        pair = two_responses(a, b, response_a, response_b)
        return self._transport.run(self._service.judge(question, *pair, id, criterion))

    def judge_many(
        self,
        pairs: Iterable[Pair],
        *,
        in_flight: int = IN_FLIGHT,
        progress: bool | None = None,
        **criterion: "Unpack[Criterion]",
    ) -> Generator[Judgment | ItemError, None, None]:
        """Judges any number of pairs, and yields one result for each, in order.

        Pairs are read when there is room for them, and nothing is sent before the first result is
        asked for. Batches have a size that takes the service a few seconds, which the client learns
        by its first calls. One that is too slow or too large is split.

        Args:
            pairs: Each is (question, a, b), or a mapping with the fields of POST /judge, whose
                criterion overrides the arguments.
            in_flight: Most requests at a time.
            progress: Whether to show a progress bar; by default, if tqdm is installed and stderr is
                a terminal.
            **criterion: The criterion of every pair, as in `judge`.

        Yields:
            A judgment, or the error of this pair, which is not a verdict.

        Raises:
            ScopeError: The service refuses the whole work, or does not answer for too long.
            TypeError: An item of `pairs` is not a pair.
        """
        preparation = self._service.judging(criterion, in_flight)
        return self._many(preparation, pairs, pair_item, progress)

    def _many(
        self,
        preparation: Steps[Work[R]],
        inputs: Iterable[T],
        item: Callable[[T, int], Item],
        progress: bool | None,
    ) -> Generator[R, None, None]:
        """Yields the results of the inputs, and works on later ones meanwhile."""
        stopped = threading.Event()
        running: set[Future[None]] = set()
        bar = Bar(progress, inputs)
        threads: ThreadPoolExecutor | None = None
        try:
            work = self._transport.run(preparation)
            batches = _cut(work, (item(each, number) for number, each in enumerate(inputs)))
            while True:
                while work.has_room() and (batch := next(batches, None)):
                    steps = work.steps(batch.items)
                    if threads is None and batch.is_last:
                        # The only one: a thread for it would take longer than a small batch.
                        self._transport.run(steps)
                        continue
                    if threads is None:
                        threads = ThreadPoolExecutor(
                            work.in_flight, thread_name_prefix="scope-judge"
                        )
                    running.add(threads.submit(self._transport.run, steps, stopped))
                if results := work.results.take():
                    bar.advance(len(results))
                    yield from results
                elif not running:
                    return
                else:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
        finally:
            bar.close()
            stopped.set()
            if threads is not None:
                # A caller who leaves early does not wait for the answers that are on their way.
                threads.shutdown(wait=False, cancel_futures=True)

    def rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        **rule: "Unpack[GroupRule]",
    ) -> list[float | None]:
        """The rewards of the responses to one question, in order, as in `group_rewards`.

        None is a missing reward: no comparison of the response was accepted. It is not 0, which
        says that a response won as often as it lost. The guarantee is about comparisons, not about
        rewards.
        """
        return list(self.group_rewards(question, responses, **rule).rewards)

    def group_rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        **rule: "Unpack[GroupRule]",
    ) -> Rewards:
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

        Raises:
            ScopeError: There are no rewards.
        """
        return self._transport.run(self._service.rewards_of((question, responses), rule))

    def rewards_many(
        self,
        groups: Iterable[Group],
        *,
        in_flight: int = IN_FLIGHT,
        progress: bool | None = None,
        **rule: "Unpack[GroupRule]",
    ) -> Generator[Rewards | ItemError, None, None]:
        """Rewards any number of groups, and yields one result for each, in order.

        Batches are made as by `judge_many`.

        Args:
            groups: Each is (question, responses), or (question, responses, reference) to compare
                the responses with a reference, or a mapping with these names, which may have its
                `group` of the traffic.
            in_flight: Most requests at a time.
            progress: Whether to show a progress bar, as in `judge_many`.
            **rule: The rule of every group, as in `group_rewards`.

        Yields:
            The rewards, or the error of this group; the other groups get their rewards.

        Raises:
            ScopeError: The service refuses the whole work, or does not answer for too long.
            TypeError: An item of `groups` is not a group.
        """
        preparation = self._service.rewarding(rule, in_flight)
        item = partial(group_item, opponents=rule.get("opponents", "all"))
        return self._many(preparation, groups, item, progress)

    def reference_rewards(
        self,
        question: Question,
        responses: Sequence[Completion],
        reference: Completion,
        **rule: "Unpack[ReferenceRule]",
    ) -> Rewards:
        """Compares each of the responses to one question with a reference and rewards it.

        The arguments are those of `group_rewards`.

        Raises:
            ScopeError: There are no rewards.
        """
        group = (question, responses, reference)
        return self._transport.run(self._service.rewards_of(group, rule))

    def calibrate(
        self,
        name: str,
        examples: Iterable[Example],
    ) -> CalibrationReport:
        """Adds labeled pairs to a calibration set.

        The service recognises a pair by its digest: posting it again updates its label and adds
        nothing. So a repeated request counts no example twice; its examples are then `updated`.

        Args:
            name: Name of the set; it is made if there is none.
            examples: Each is (question, a, b, label), or a mapping with question, response_a,
                response_b and label. A label is "A", "B" or "tie".

        Raises:
            ScopeError: The service refuses the request, or does not answer for too long. Examples
                of earlier requests stay in the set; the same call adds the rest.
            TypeError: An example is none.
        """
        return self._transport.run(self._service.calibrate(examples, {"calibration": name}))

    def pool(
        self,
        name: str,
        pairs: Iterable[Pair],
    ) -> PoolReport:
        """Adds pairs without labels to a calibration set; `next_to_label` says which to label.

        A pair that the set has keeps its label, so a repeated request changes nothing.

        Args:
            name: Name of the set; it is made if there is none.
            pairs: Each is (question, a, b), or a mapping with question, response_a, response_b.

        Raises:
            ScopeError: The service refuses the request, or does not answer for too long. Pairs of
                earlier requests stay in the set; the same call adds the rest.
            TypeError: A pair is none.
        """
        return self._transport.run(self._service.pool(name, pairs))

    def next_to_label(
        self,
        name: str = "default",
        *,
        alpha: float | None = None,
        delta: float | None = None,
        limit: int = 100,
    ) -> NextLabels:
        """The pairs of a pool to label next, or the threshold once the labels decide it.

        Add the labels with `calibrate`, and ask again until `complete`.

        Args:
            name: Name of the set.
            alpha: Alpha to label for, chosen before the first label; by default that of the
                service.
            delta: Delta to label for, likewise.
            limit: Most pairs, from 1 to 10,000.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        return self._transport.run(self._service.next_to_label(name, alpha, delta, limit))

    def calibration(
        self,
        name: str = "default",
        *,
        alphas: Iterable[float] = (),
        delta: float | None = None,
    ) -> CalibrationDetail:
        """A calibration set with its thresholds and its risk-coverage curve.

        Args:
            name: Name of the set.
            alphas: Alphas whose "pac" thresholds the result has as `requested`.
            delta: Probability that each of them fails; by default the service's. Divide it by the
                number of alphas if you choose one of them after seeing all.

        Raises:
            ScopeError: There is no such set, or the service does not answer.
        """
        return self._transport.run(self._service.calibration(name, alphas, delta))

    def calibrations(self) -> Iterator[Calibration]:
        """Yields the calibration sets that the key may use, by name; raises ScopeError."""
        after: str | None = ""
        while after is not None:
            page = self._transport.run(self._service.calibration_page(after))
            yield from page.calibrations
            after = page.next_after

    def versions(self, name: str, *, limit: int = 100) -> tuple[Version, ...]:
        """The last changes of a calibration set, newest first; raises ScopeError.

        Args:
            name: Name of the set.
            limit: Most changes, from 1 to 1,000.
        """
        return self._transport.run(self._service.versions(name, limit)).versions

    def monitor(self, name: str = "default") -> Monitor:
        """What audits and drift show about a calibration set; raises ScopeError."""
        return self._transport.run(self._service.monitor(name))

    def rollback(self, name: str, version: int, *, dry_run: bool = False) -> RollbackReport:
        """Restores an earlier version of a calibration set as a new one.

        Args:
            name: Name of the set, which may be deleted.
            version: The version to restore.
            dry_run: Only say what it would do.

        Raises:
            ScopeError: The service refuses the request, or does not answer. If the connection
                breaks before the answer, the change may have been made, and is not sent again.
        """
        return self._transport.run(self._service.rollback(name, version, dry_run=dry_run))

    def preview_deletion(self, name: str) -> Deletion:
        """What the deletion of a calibration set would do; raises ScopeError."""
        return self._transport.run(self._service.preview_deletion(name))

    def delete_calibration(self, name: str) -> None:
        """Deletes a calibration set, which `rollback` can restore; raises what that raises."""
        self._transport.run(self._service.delete_calibration(name))

    def audits(
        self, calibration: str | None = None, *, status: Status | None = None
    ) -> Iterator[Audit]:
        """Yields the judgments that were drawn for an audit, oldest first.

        Args:
            calibration: Only audits of this calibration set; by default of all sets that the key
                may use.
            status: Only audits that are "open", "labelled", "closed" or "expired".

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        after: int | None = 0
        while after is not None:
            page = self._transport.run(self._service.audit_page(calibration, status, after))
            yield from page.audits
            after = page.next_after

    def audit_texts(self, calibration: str | None = None) -> Iterator[Audit]:
        """Yields the oldest open audits with texts, at most 64, for a person who labels.

        The order depends on the key, and a random response is response A. The service keeps texts
        with SCOPE_AUDIT_TEXTS; the key needs the role `label` or `calibrate`.

        Args:
            calibration: Only audits of this calibration set; by default of all sets that the key
                may use.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        after: int | None = 0
        while after is not None:
            page = self._transport.run(self._service.audit_texts_page(calibration, after))
            yield from page.audits
            after = page.next_after

    def label_audits(self, labels: Mapping[str, Label]) -> AuditLabels:
        """Labels judgments that were drawn for an audit.

        The first label of an audit counts, and sending it again changes nothing. The key that gave
        it can correct it, and so can a key with the role `admin`.

        Args:
            labels: The id of each audit, from `Judgment.audit` or `audits`, and its label: "A", "B"
                or "tie", in the order of the responses that was judged.

        Returns:
            Counts of the labels, and the ids whose labels were not taken.

        Raises:
            ScopeError: The service refuses a request, or does not answer. One request has at most
                1,000 labels, and labels of earlier requests were taken.
        """
        return self._transport.run(self._service.label_audits(labels))

    def close_audits(self, reasons: Mapping[str, str]) -> AuditLabels:
        """Closes audits that nobody can label, so that other labels do not wait for them.

        A closed audit counts as right for the alarm, and as an error for the certificate. It may
        still be labeled later.

        Args:
            reasons: The id of each audit, and why it cannot be labeled, in at most 200 characters.

        Raises:
            ScopeError: The service refuses a request, or does not answer, as for `label_audits`.
        """
        return self._transport.run(self._service.close_audits(reasons))

    def audit_trail(self, name: str) -> Iterator[AuditEvent]:
        """Yields alarms, their ends, changed labels and closed audits of a set, newest first.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        page = self._transport.run(self._service.audit_trail(name, None))
        yield from page.entries
        while page.next_before is not None:
            page = self._transport.run(self._service.audit_trail(name, page.next_before))
            yield from page.entries

    def resume(self, name: str, reason: str) -> tuple[EndedAlarm, ...]:
        """Ends the alarms of a set, so that its verdicts are accepted again.

        The audits of their criteria start over.

        Args:
            name: Name of the set.
            reason: Why the verdicts can be used again, in at most 200 characters.

        Returns:
            The alarms that have ended; none if there was none.

        Raises:
            ScopeError: There is no such set, or the service does not answer.
        """
        return self._transport.run(self._service.resume(name, reason)).resumed

    def absorb(self, name: str, **asked: "Unpack[Absorption]") -> AbsorbReport:
        """Makes labeled audits examples of a calibration set, in one new version.

        After an alarm, the first audits since then replace all examples; `recovery` of the monitor
        has their number. Without an alarm, those up to the first open one are added.

        Args:
            name: Name of the set.
            **asked: Fields of `Absorption`.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        return self._transport.run(self._service.absorb(name, asked))


def _cut(work: Work[R], items: Iterator[Item]) -> Iterator[Batch]:
    """Yields batches, and reads no more items than they need."""
    for item in items:
        if full := work.cutter.add(item):
            yield Batch(full)
    if rest := work.cutter.rest():
        yield Batch(rest, is_last=True)
