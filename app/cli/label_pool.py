"""The pool of a calibration set of a running service, for `scope-judge label`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from app.cli.asking import ROWS_PER_REQUEST
from app.cli.console import failure, progress_bar
from app.cli.label_answers import Answers, Pooled
from app.cli.score_upload import set_path
from app.cli.service_client import ServiceClient
from app.core.comparison import Label

_DIGESTS_IN_ANSWER = 10_000


class Level(NamedTuple):
    """The level of `pac` that a person labels for, chosen before the first label.

    Args:
        alpha: Largest share of wrong verdicts among the accepted ones, in (0, 1).
        delta: Probability that the promise fails, in (0, 1).
    """

    alpha: float
    delta: float


class Next(NamedTuple):
    """The pairs to label next, or the threshold.

    Args:
        version: Version of the set.
        n: Number of pairs that `pac` counts.
        labelled: Number of these that have a label.
        needed: Number of labels that the next test needs.
        complete: Whether the threshold is known.
        threshold: The threshold in nats; None before it is known, and if nothing is accepted.
        digests: Digests of the pairs to label, by rising uncertainty.
    """

    version: int
    n: int
    labelled: int
    needed: int
    complete: bool
    threshold: float | None
    digests: Sequence[str]


class Pool:
    """The pool of one set.

    Args:
        service: The service.
        name: Name of the calibration set.
        level: The level that the tests are for.
    """

    def __init__(self, service: ServiceClient, name: str, level: Level) -> None:
        self._service = service
        self.name = name
        self.level = level

    def fill(self, answers: Answers) -> Sequence[tuple[Pooled, str]]:
        """Sends the pairs that the pool does not have yet, to be judged and kept as scores.

        Returns:
            The pairs that could not be judged, each with the reason.

        Raises:
            typer.Exit: The service does not answer for too long, or refuses the pairs.
        """
        missing = answers.unknown
        if not missing:
            return ()
        size = min(ROWS_PER_REQUEST, self._service.max_batch)
        failed: list[tuple[Pooled, str]] = []
        with progress_bar() as progress:
            done = len(answers.pairs) - len(missing)
            task = progress.add_task("judging", total=len(answers.pairs), completed=done)
            for start in range(0, len(missing), size):
                some = missing[start : start + size]
                failed += self._send(some, answers)
                progress.advance(task, len(some))
        return failed

    def _send(self, some: Sequence[Pooled], answers: Answers) -> list[tuple[Pooled, str]]:
        failed: list[tuple[Pooled, str]] = []
        posted = self._service.post_judged(
            set_path(self.name, "/pool"),
            list(some),
            lambda pairs: {"comparisons": [pair.fields for pair in pairs]},
        )
        for pairs, answer, reason in posted:
            if reason:
                failed += [(pair, reason) for pair in pairs]
                continue
            both = zip(pairs, answer["digests"], strict=True)
            answers.add_digests((pair, digest) for pair, digest in both if digest is not None)
            errors = answer["errors"]
            failed += [(pairs[each["index"]], each["error"]["detail"]) for each in errors]
        return failed

    def next(self) -> Next:
        """Asks what to label now.

        Raises:
            typer.Exit: The service does not answer for too long, or has no such set.
        """
        level = self.level._asdict()
        answer = self._service.get(set_path(self.name, "/next"), **level, limit=_DIGESTS_IN_ANSWER)
        return Next(**{field: answer[field] for field in Next._fields})

    def coverage(self) -> float:
        """The share of the pairs that the threshold accepts, once it is known."""
        level = self.level._asdict()
        answer = self._service.get(set_path(self.name), **level, delta_for=1)
        return float(answer["requested"][0]["coverage"])

    def post(self, answers: Answers) -> None:
        """Sends the labels that the service does not have; a repeated one changes nothing.

        Raises:
            typer.Exit: The service does not answer for too long, or refuses a label.
        """
        waiting = answers.unposted
        size = min(ROWS_PER_REQUEST, self._service.max_batch)
        for start in range(0, len(waiting), size):
            some = list(waiting[start : start + size])
            for posted in self._service.post_judged("/calibrate", some, self._labelled):
                errors = [each["error"]["detail"] for each in posted.answer.get("errors", ())]
                if errors or posted.reason:
                    number = posted.answer.get("failed", len(posted.items))
                    reason = posted.reason or errors[0]
                    raise failure(f"the service refused {number} labels: {reason}")
                answers.note_posted(pair for pair, _ in posted.items)

    def _labelled(self, some: Sequence[tuple[Pooled, Label]]) -> dict[str, Any]:
        examples = [{**pair.fields, "label": label} for pair, label in some]
        return {"calibration": self.name, "examples": examples}
