"""`scope-judge cascade`: fixes what a cascade needs before its first label."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, Url, changing, connected
from app.cli.console import CommandError, say, stdout
from app.cli.progress import progress_bar
from app.cli.running import options

# The help of a command needs its options only: functions import the client.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.records import CascadePlan, JudgeScore, PairScore

    # The scores of the small and of the large judge.
    Pair = tuple[JudgeScore | PairScore, PairScore]

app = typer.Typer(
    help="Plan a cascade: a small judge first, a large one for the rest.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """With a callback, `plan` stays a subcommand."""


@app.command()
def plan(
    files: options.Inputs,
    name: Annotated[str, typer.Option(help="Calibration set whose first version it is.")] = (
        "default"
    ),
    alpha: Annotated[
        float, typer.Option(parser=options.share, help="Alpha that the cascade is for.")
    ] = 0.1,
    share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="r, if you choose it.  [default: by contradictions]"),
    ] = None,
    escalate_url: Annotated[
        str | None,
        typer.Option(
            help="Address of the large judge, if the service at --url has no SCOPE_ESCALATE_URL; "
            "nothing is written then."
        ),
    ] = None,
    small_price: Annotated[float, typer.Option(min=0, help="Price of a small judge's call.")] = 1.0,
    large_price: Annotated[
        float, typer.Option(min=0, help="Price of a large judge's call.")
    ] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Score at least 1,000 pairs without labels with both judges, and fix r.

    The pairs must not be those that you label afterwards. A label in the files is not read.
    """
    from app.core.cascade import FEWEST_PAIRS

    comparisons = _comparisons(files, options.given_format(columns, encoding))
    if len(comparisons) < FEWEST_PAIRS:
        raise CommandError(
            f"a plan needs at least {FEWEST_PAIRS:,} different pairs, and the files have "
            f"{len(comparisons):,}"
        )
    with connected(url) as client:
        rungs = client.info().rungs
        if rungs is None:
            small, large, both = _scored_by_two(client, url, escalate_url, comparisons)
        else:
            if not dry_run:
                # Before a thousand pairs are scored for nothing.
                _refuse_present(client, name)
            small, large = (rung.fingerprint for rung in rungs)
            both = _scored_by_cascade(client, comparisons)
        with changing():
            made = client.plan_cascade(
                name,
                [pair for pair in both if not any(getattr(one, "error", None) for one in pair)],
                small=small,
                large=large,
                alpha=alpha,
                share=share,
                dry_run=dry_run or rungs is None,
            )
    _print_plan(made, name, small_price=small_price, large_price=large_price)


def _scored_by_two(
    client: "ScopeClient", url: str, escalate_url: str | None, comparisons: list[dict[str, Any]]
) -> "tuple[str, str, list[Pair]]":
    """The fingerprints and the scores of two services, each with one judge."""
    if escalate_url is None:
        raise CommandError(
            f"the service at {url} has one judge: start it with SCOPE_ESCALATE_URL, or name the "
            "large judge with --escalate-url, for a plan that is only printed"
        )
    with connected(escalate_url) as other:
        small, large = client.info().fingerprint, other.info().fingerprint
        scores = zip(_scores(client, comparisons), _scores(other, comparisons), strict=True)
        return small, large, list(scores)


def _scored_by_cascade(client: "ScopeClient", comparisons: list[dict[str, Any]]) -> "list[Pair]":
    from scope_judge.records import JudgeScore

    nothing = JudgeScore(gap_fwd=None, gap_rev=None, label_mass=None)
    return [(score.small or nothing, score) for score in _scores(client, comparisons)]


def _refuse_present(client: "ScopeClient", name: str) -> None:
    from scope_judge.errors import NotFoundError

    with suppress(NotFoundError):
        client.calibration(name)
        raise CommandError(
            f"there is a calibration {name!r}, and a plan is made before the first label: use "
            "another --name, or delete the calibration first"
        )


def _print_plan(made: "CascadePlan", name: str, *, small_price: float, large_price: float) -> None:
    cost = small_price + made.escalated * large_price
    within = made.contradictions_within
    lines = [
        f"{made.pairs} pairs: the judges contradict each other on {made.contradictions:.1%}",
        f"r = {made.share:.3f}: the small judge may decide the {made.share:.1%} of which it is "
        "surest" + ("" if within is None else f", where they contradict on {within:.1%}"),
        f"the large judge is asked about at least {made.escalated:.1%} of the pairs: {cost:g} a "
        f"pair, against {large_price:g} for the large judge alone",
    ]
    for line in lines:
        say(line, output=stdout)
    if not made.share:
        say("Every pair goes to the large judge: this small judge saves nothing.")
    if made.version is None:
        say("Nothing was written.")
    else:
        say(f"{name} is version {made.version}. Now label other pairs: `scope-judge calibrate`.")


def _comparisons(files: list[Path], form: Any) -> list[dict[str, Any]]:
    """Each comparison of the files once, in order."""
    from app.cli.running.rows import read_items

    items = {item.key: item.fields for item in read_items(files, form)}
    return [fields for fields in items.values() if isinstance(fields, dict)]


def _scores(client: "ScopeClient", comparisons: list[dict[str, Any]]) -> "list[PairScore]":
    scores = []
    with progress_bar() as progress:
        task = progress.add_task(f"scoring by {client.info().judge}", total=len(comparisons))
        for score in client.score_pairs(comparisons):
            scores.append(score)
            progress.advance(task)
    return scores
