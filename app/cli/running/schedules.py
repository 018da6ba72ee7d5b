"""Plans for a leaderboard: which battles to judge next, and which ones to label."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from app.cli.console import CommandError, console, print_table, say
from app.cli.running.options import check_extra, check_human_probability
from app.cli.running.rows import check_output, delimiter_of, write_all
from app.files.reading import STDIN, files_of, read_rows

# The help of a command needs its options only: functions import numpy.
if TYPE_CHECKING:
    from app.ratings.battles import Battles
    from app.ratings.label_plan import LabelPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRows:
    """Rows that `scope-judge battles` wrote.

    Args:
        files: Files, folders and patterns.
        human_probability: Probability of a label in the rows that do not say it.
        encoding: Encoding of text without a byte order mark; None for UTF-8.
    """

    files: Sequence[Path]
    human_probability: float | None
    encoding: str | None

    def battles(self) -> "list[Battles]":
        """The battles of each judge, the board's first.

        Raises:
            InvalidRequestError: The rows cannot be read.
            CommandError: The probability is impossible, or the extra is not installed.
        """
        check_extra("ratings")
        check_human_probability(self.human_probability)
        from app.ratings.rows import read_battles

        return read_battles(
            self.files, human_probability=self.human_probability, encoding=self.encoding
        )


def print_schedule(judged: JudgedRows, count: int, out: Path | None) -> None:
    """Prints which pairs of models the next battles should be of.

    Args:
        judged: The battles so far.
        count: Number of battles.
        out: File for the pairs; it is replaced. None to print only.

    Raises:
        InvalidRequestError: The rows cannot be read.
        CommandError: The file cannot be written.
    """
    battles = judged.battles()[0]
    from app.ratings.results import RatingSettings
    from app.ratings.schedule import schedule_of

    with console.status("rating"):
        schedule = schedule_of(battles, count)
    if out is not None:
        write_all(out, [pair._asdict() for pair in schedule.pairs])
    points = RatingSettings().points
    table = Table()
    for heading in ("model_a", "model_b"):
        table.add_column(heading)
    table.add_column("battles", justify="right")
    for pair in schedule.pairs:
        table.add_row(pair.model_a, pair.model_b, str(pair.battles))
    print_table(table, title=f"the next {count} battles")
    labels = ""
    if schedule.view == "debiased":
        labels = (
            f", if people label {battles.labelled.sum() / battles.judged.sum():.0%} of them too"
        )
    say(
        f"Mean standard error of a rating in the view `{schedule.view}`: "
        f"{points * schedule.error_now:.1f} points now, "
        f"{points * schedule.error_then:.1f} after these battles, "
        f"{points * schedule.error_evenly:.1f} if they were spread evenly over all pairs{labels}."
    )


def print_label_plan(
    judged: JudgedRows, count: int, out: Path | None, *, seed: int, overwrite: bool
) -> None:
    """Draws battles to label, and says first what their labels bring.

    Args:
        judged: The battles so far.
        count: Expected number of labels.
        out: File for all rows, with `to_label` and the new human_probability; None to print only.
        seed: Seed of the draw.
        overwrite: Whether `out` may be replaced.

    Raises:
        InvalidRequestError: The rows cannot be read, or no such draw is right.
        CommandError: The file cannot be written.
    """
    if STDIN in judged.files:
        raise CommandError("--schedule-labels reads its rows twice: give files, not standard input")
    check_output(out, files_of(judged.files), overwrite=overwrite)
    boards = judged.battles()
    from app.ratings.label_plan import label_plan

    battles = boards[0]
    with console.status("rating"):
        plan = label_plan(battles, count, seed=seed)
    if len(boards) > 1:
        say(f"The plan is for the board of {battles.judge}.")
    _print_consequence(plan)
    if out is not None:
        _write_plan(judged, battles, plan, out)


def _print_consequence(plan: "LabelPlan") -> None:
    drawn = f"Drawn: {int(plan.drawn.sum())} battles. Their labels should"
    evenly = f", or ±{plan.evenly:.0f} if as many were drawn evenly."
    if plan.view == "debiased" and plan.now is not None:
        say(
            f"{drawn} narrow the median 95% interval of `debiased` from ±{plan.now:.0f} to about "
            f"±{plan.then:.0f} points{evenly}"
        )
        return
    if plan.now is None:
        now = "the ratings have no interval with two ends."
    else:
        now = (
            f"the table shows `{plan.view}` with ±{plan.now:.0f} points, and the judge's bias "
            f"toward a model can be larger."
        )
    say(
        f"{drawn} give `debiased` a median 95% interval of about ±{plan.then:.0f} points{evenly} "
        "It will be wider if the judge is wrong more often than its probabilities say. So far "
        f"{now}"
    )


def _write_plan(judged: JudgedRows, battles: "Battles", plan: "LabelPlan", out: Path) -> None:
    from app.ratings.rows import battle_keys

    keys = zip(battles.battle.tolist(), battles.names, strict=True)
    planned = {
        key: {"human_probability": probability, "to_label": drawn}
        for key, probability, drawn in zip(
            keys, plan.probability.tolist(), plan.drawn.tolist(), strict=True
        )
        # Without a judgment it is NaN: the row keeps what it has.
        if probability == probability
    }
    rows = [row for path in files_of(judged.files) for row in read_rows(path, judged.encoding)]
    keys_of_rows = battle_keys(judged.files, judged.encoding)
    written = [
        {**row.fields, "to_label": False, **planned.get(key, {})}
        for row, key in zip(rows, keys_of_rows, strict=True)
    ]
    write_all(out, written, delimiter=delimiter_of(rows))
    say(
        f"{out} has all rows. Let people fill `human` in every row whose `to_label` is true, and "
        "do not show them the models or the judgment. Then make the board of this file."
    )
