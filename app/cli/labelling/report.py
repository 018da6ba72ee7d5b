"""The last lines of `scope-judge label`: the threshold, its promise, and the limits of both."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.cli.console import say
from app.cli.labelling.pool import Pool
from app.service.labelling.answers import Answers

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import NextLabels

_NOT_PROMISED = (
    "Use these labels only for this threshold: not for an accuracy, a threshold of marginal, or "
    "another alpha or delta. They are of the pairs on which the judge is most certain, and are not "
    "a random sample."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The state at the end of a session.

    Args:
        last: The last answer of the service.
        skipped: Number of pairs that the next test needs and that were skipped.
        absent: Number of pairs that the next test needs and that are not in the files.
    """

    last: "NextLabels"
    skipped: int = 0
    absent: int = 0


def print_report(pool: Pool, answers: Answers, ended: Ended) -> None:
    """Prints the result of the labels so far.

    Args:
        pool: The pool.
        answers: The answers of this person.
        ended: The state at the end of the session.
    """
    last, level = ended.last, pool.level
    rule = f"pac at alpha {level.alpha:g} with delta {level.delta:g}"
    say(
        (f"{answers.given} of your {len(answers.pairs)} pairs have a label", "bold"),
        f": calibration {pool.name}, version {last.version}",
    )
    if not last.complete:
        _print_reason(ended)
        more = _counted(last.needed, "more label")
        say(
            f"There is no threshold yet: {rule} needs {more} before its next test. Rerun "
            "the command to continue."
        )
        return
    if last.threshold is None:
        say(
            (f"Enough: {rule} accepts nothing.", "bold"),
            " Its first test has failed, and more labels of these pairs do not change that. Trying "
            "another alpha now would be a choice after seeing the labels.",
        )
    else:
        say(
            (f"Enough: {rule} has the threshold {last.threshold:.6f}", "bold"),
            f", and accepts {pool.coverage():.0%} of these pairs. Labels for all pairs would give "
            "the same one.",
        )
        say(
            f"At most {100 * level.alpha:.3g}% of the accepted verdicts are wrong, except with "
            f"probability {level.delta:g} of an unlucky sample, if the pairs were drawn at random "
            "from the traffic, and alpha and delta were decided before the first label."
        )
    if last.labelled < last.n:
        say(_NOT_PROMISED)


def _print_reason(ended: Ended) -> None:
    if ended.skipped:
        pairs = _counted(ended.skipped, "skipped pair")
        say(
            (f"Stopped at {pairs}:", "yellow"),
            " a skip is not a label, and the tests cannot go beyond it. Rerun the command to be "
            "asked again.",
        )
    if ended.absent:
        pairs = _counted(ended.absent, "pair")
        say(
            (f"Stopped at {pairs} outside your files:", "yellow"),
            " the pool has more pairs, and somebody who has their texts must label them first.",
        )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
