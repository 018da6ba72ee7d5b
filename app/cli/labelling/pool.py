"""The pool of a calibration set of a running service, for `scope-judge label`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app.cli.console import CommandError
from app.cli.running.run import ROWS_PER_REQUEST, Results, answered
from app.cli.service_client import Posted, ServiceClient, errors_of, read, unfitting
from app.cli.set_transfer import set_path
from app.core.looks import Looks
from app.service.labelling.answers import Answers

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import NextLabels

_DIGESTS_IN_ANSWER = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """The level of `pac` that a person labels for, chosen before the first label.

    Args:
        alpha: Largest share of wrong verdicts among the accepted ones, in (0, 1).
        delta: Probability that the promise fails, in (0, 1).
    """

    alpha: float
    delta: float


def plan_fields(plan: Looks) -> dict[str, Any]:
    """A plan as the pool takes it."""
    fields = asdict(plan)
    return {"looks": list(fields.pop("sizes")), **fields}


class Pool:
    """The pool of one set.

    Args:
        service: The service.
        name: Name of the calibration set.
        level: The level that the tests are for.
        plan: The planned looks; None without any.
    """

    def __init__(
        self, service: ServiceClient, name: str, level: Level, plan: Looks | None = None
    ) -> None:
        self._service = service
        self.name = name
        self.level = level
        self.plan = plan

    def fill(self, answers: Answers, keys: Collection[str]) -> Mapping[str, str]:
        """Sends the pairs that the pool does not have yet, to be judged and kept as scores.

        Args:
            answers: The pairs of this person.
            keys: Only pairs with these keys.

        Returns:
            Key of a pair that could not be judged -> the reason.

        Raises:
            CommandError: The service does not answer for too long, or refuses the pairs.
        """
        failed: dict[str, str] = {}
        size = min(ROWS_PER_REQUEST, self._service.max_batch)
        wanted = set(keys)
        comparisons = {pair.key: pair.fields for pair in answers.pairs if pair.key in wanted}
        for results in answered(comparisons, self._ask, answers.pooled, size=size):
            judged = {
                key: result["digest"] for key, result in results.items() if "digest" in result
            }
            answers.add_digests(judged)
            failed |= {key: r["error"]["detail"] for key, r in results.items() if "error" in r}
        return failed

    def _ask(self, comparisons: Mapping[str, Any]) -> Iterator[Results]:
        def body(keys: list[str]) -> dict[str, Any]:
            planned = {} if self.plan is None else plan_fields(self.plan)
            return {"comparisons": [comparisons[key] for key in keys], **planned}

        for part in self._service.post_judged(
            set_path(self.name, "/pool"), list(comparisons), body
        ):
            yield _digests(part)

    def next(self) -> "NextLabels":
        """Asks what to label now.

        Raises:
            CommandError: The service does not answer for too long, or has no such set.
        """
        from scope_judge import NextLabels

        level = asdict(self.level)
        answer = self._service.get(set_path(self.name, "/next"), **level, limit=_DIGESTS_IN_ANSWER)
        return read(NextLabels, answer)

    def coverage(self) -> float:
        """The share of the pairs that the threshold accepts, once it is known."""
        from scope_judge import CalibrationDetail

        level = asdict(self.level)
        answer = self._service.get(set_path(self.name), **level, delta_for=1)
        rows = read(CalibrationDetail, answer).requested
        if len(rows) != 1:
            raise unfitting("does not have the requested threshold")
        return rows[0].coverage

    def post(self, answers: Answers) -> None:
        """Sends the labels that the service does not have; a repeated one changes nothing.

        Raises:
            CommandError: The service does not answer for too long, or refuses a label.
        """

        def body(keys: list[str]) -> dict[str, Any]:
            examples = [{**answers.pair(key).fields, "label": labels[key]} for key in keys]
            return {"calibration": self.name, "examples": examples}

        labels = answers.unposted
        waiting = list(labels)
        size = min(ROWS_PER_REQUEST, self._service.max_batch)
        for start in range(0, len(waiting), size):
            for posted in self._service.post_judged(
                "/calibrate", waiting[start : start + size], body
            ):
                _check_taken(posted)
                answers.note_posted(posted.items)


def _digests(part: Posted) -> Results:
    """The digest of each pair of one request; a pair that failed has its error."""
    from scope_judge import PoolReport

    if part.reason:
        return {key: {"error": {"detail": part.reason}} for key in part.items}
    report = read(PoolReport, part.answer)
    if len(report.digests) != len(part.items):
        raise unfitting("does not have one digest for each pair that was sent")
    both = zip(part.items, report.digests, strict=True)
    judged: Results = {key: {"digest": digest} for key, digest in both if digest is not None}
    return judged | errors_of(part, report.errors)


def _check_taken(posted: Posted) -> None:
    """Raises CommandError unless the service has taken all labels of a request."""
    from scope_judge import CalibrationReport

    if posted.reason:
        raise CommandError(f"the service refused {len(posted.items)} labels: {posted.reason}")
    report = read(CalibrationReport, posted.answer)
    if report.errors:
        reason = report.errors[0].error.detail
        raise CommandError(f"the service refused {report.failed} labels: {reason}")
