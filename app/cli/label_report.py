"""The last lines of `scope-judge label`: the threshold, its promise, and the limits of both."""

from rich.markup import escape

from app.cli.console import console, print_sentence
from app.cli.label_answers import Answers
from app.cli.label_pool import Pool
from app.cli.label_session import Outcome

_NOT_PROMISED = (
    "Conclude nothing else from these labels: no accuracy, no threshold of marginal, and no other "
    "alpha or delta. They are of the pairs on which the judge is most certain, and no sample."
)


def print_report(pool: Pool, answers: Answers, outcome: Outcome) -> None:
    """Prints what the labels have given so far.

    Args:
        pool: The pool.
        answers: The answers of this person.
        outcome: The state at the end of the session.
    """
    found, level = outcome.found, pool.level
    rule = f"pac at alpha {level.alpha:g} with delta {level.delta:g}"
    console.print(
        f"[bold]{answers.given} of your {len(answers.pairs)} pairs have a label[/]: calibration "
        f"{escape(pool.name)}, version {found.version}",
        highlight=False,
    )
    if not found.complete:
        _print_reason(outcome)
        more = _counted(found.needed, "more label")
        print_sentence(
            f"There is no threshold yet: {rule} needs {more} before its next test. The same "
            "command goes on."
        )
        return
    if found.threshold is None:
        print_sentence(
            f"[bold]Enough: {rule} accepts nothing.[/] Its first test has failed, and more labels "
            "of these pairs do not change that. Trying another alpha now would be a choice after a "
            "look at the labels."
        )
    else:
        print_sentence(
            f"[bold]Enough: {rule} has the threshold {found.threshold:.6f}[/], and accepts "
            f"{pool.coverage():.0%} of these pairs. Labels for all pairs would give the same one."
        )
        print_sentence(
            f"At most {100 * level.alpha:.3g}% of the accepted verdicts are wrong, except with "
            f"probability {level.delta:g} of an unlucky sample, if the pairs were drawn at random "
            "from the traffic, and alpha and delta were decided before the first label."
        )
    if found.labelled < found.n:
        print_sentence(_NOT_PROMISED)


def _print_reason(outcome: Outcome) -> None:
    if outcome.skipped:
        pairs = _counted(outcome.skipped, "skipped pair")
        print_sentence(
            f"[yellow]Stopped at {pairs}:[/] a skip is no label, and the tests cannot go beyond "
            "it. You are asked again if you run the command again."
        )
    if outcome.absent:
        pairs = _counted(outcome.absent, "pair")
        print_sentence(
            f"[yellow]Stopped at {pairs} outside your files:[/] the pool has more pairs, and "
            "somebody who has their texts must label them first."
        )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
