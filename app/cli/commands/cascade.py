"""`scope-judge cascade`: fixes what a cascade needs before its first label."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.console import CommandError, say, stdout
from app.cli.running.options import (
    ColumnMap,
    Encoding,
    Inputs,
    check_share,
    given_format,
)
from app.cli.service_client import DEFAULT_URL, ServiceClient, Url, connected, read

app = typer.Typer(
    help="Plan a cascade: a small judge first, a large one for the rest.",
    no_args_is_help=True,
    add_completion=False,
)

_IN_REQUEST = 64
_NUMBERS = ("gap_fwd", "gap_rev", "label_mass")


@app.callback()
def _group() -> None:
    """With a callback, `plan` stays a subcommand."""


@app.command()
def plan(
    files: Inputs,
    name: Annotated[str, typer.Option(help="Calibration set whose first version it is.")] = (
        "default"
    ),
    alpha: Annotated[float, typer.Option(help="Alpha that the cascade is for.")] = 0.1,
    share: Annotated[
        float | None,
        typer.Option(help="r, if you choose it.  [default: by contradictions]"),
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Score at least 1,000 pairs without labels with both judges, and fix r.

    The pairs must not be those that you label afterwards. A label in the files is not read.
    """
    from scope_judge.records import CascadePlan

    check_share("--alpha", alpha)
    comparisons = _comparisons(files, given_format(columns, encoding))
    with connected(url) as service:
        rungs = service.get("/info").get("rungs")
        if rungs is None and escalate_url is None:
            raise CommandError(
                f"the service at {url} has one judge: start it with SCOPE_ESCALATE_URL, or name "
                "the large judge with --escalate-url, for a plan that is only printed"
            )
        scores = _scores(service, comparisons)
        if rungs is None:
            with connected(escalate_url or "") as other:
                large = _scores(other, comparisons)
                fingerprints = service.fingerprint, other.fingerprint
            both = list(zip(scores, large, strict=True))
        else:
            fingerprints = rungs[0]["fingerprint"], rungs[1]["fingerprint"]
            both = [(each["small"] or {}, each) for each in scores]
        body = {
            "small": fingerprints[0],
            "large": fingerprints[1],
            "alpha": alpha,
            "share": share,
            "dry_run": dry_run or rungs is None,
            "pairs": [
                {"small": _numbers(a), "large": _numbers(b)}
                for a, b in both
                if not a.get("error") and not b.get("error")
            ],
        }
        # Not repeated: a second plan of the same set is refused.
        answer = service.change_once(f"/calibrations/{name}/cascade", body)
    if as_json:
        print(json.dumps(answer))
        return
    made = read(CascadePlan, answer)
    alone, cascade = large_price, small_price + made.escalated * large_price
    within = made.contradictions_within
    lines = [
        f"{made.pairs} pairs: the judges contradict each other on {made.contradictions:.1%}",
        f"r = {made.share:.3f}: the small judge may decide the {made.share:.1%} of which it is "
        "surest" + ("" if within is None else f", where they contradict on {within:.1%}"),
        f"the large judge is asked about at least {made.escalated:.1%} of the pairs: {cascade:g} a "
        f"pair, against {alone:g} for the large judge alone",
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


def _scores(service: ServiceClient, comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    scores: list[dict[str, Any]] = []
    for start in range(0, len(comparisons), _IN_REQUEST):
        part = comparisons[start : start + _IN_REQUEST]
        for posted in service.post_judged("/scores", part, lambda rows: {"comparisons": rows}):
            found = posted.answer.get("scores", [])
            if len(found) != len(posted.items):
                raise CommandError(f"the judge failed on {len(posted.items)} pairs")
            scores += found
        say(f"{len(scores)} of {len(comparisons)} pairs scored by {service.judge_name}")
    return scores


def _numbers(score: dict[str, Any]) -> dict[str, Any]:
    return {name: score.get(name) for name in _NUMBERS}
