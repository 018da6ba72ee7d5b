"""`scope-judge calibrate`: adds files of labeled pairs to a set of a running service.

All pairs are judged first, and their scores are kept in a file beside the input. Then all of them
become one version of the set. So an interrupted run leaves the set unchanged, and can be resumed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from app.cli.assessment import assessment_of_answer, print_assessment
from app.cli.console import CommandError, print_thresholds, say
from app.cli.effects import EvenIfInfeasible, Yes, ask, note_other_change, show_change
from app.cli.group_lines import lines_of_groups
from app.cli.labelled_rows import checked_pairs
from app.cli.running.options import (
    ColumnMap,
    Encoding,
    Inputs,
    OnContradictions,
    ShapeName,
    check_label_noise,
    given_contradictions,
    given_format,
)
from app.cli.running.rows import Item
from app.cli.running.run import Ask, Results, Run, finished, is_judged, journal_path
from app.cli.service_client import (
    DEFAULT_URL,
    PATIENCE_S,
    Patience,
    Posted,
    ServiceClient,
    Url,
    connected,
    errors_of,
    read,
    unfitting,
)
from app.cli.set_transfer import Upload, preview_scores, requests_of, set_path, upload_scores
from app.cli.stopping import resumable
from app.core.groups import declared_groups

_SHOWN_FAILURES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failure:
    """A row that was not added, and the reason."""

    place: str
    detail: str


def calibrate(
    files: Inputs,
    name: Annotated[str, typer.Option(help="Name of the calibration set.")] = "default",
    label_noise: Annotated[
        float | None,
        typer.Option(help="Probability that a label of the set is wrong."),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(help="How pac counts pairs of one question: one, adjusted or ignore."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Groups to declare, such as math,code."),
    ] = None,
    by_group: Annotated[
        bool | None,
        typer.Option(
            "--by-group/--not-by-group",
            help="Calibrate groups with enough pairs separately.  [default: as the set does]",
        ),
    ] = None,
    shape: ShapeName = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    contradictions: OnContradictions = "drop",
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per request.")] = 100,
    overwrite: Annotated[
        bool, typer.Option(help="Discard an unfinished run with another judge.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Remove all other examples of the set, after a preview.",
        ),
    ] = False,
    even_if_infeasible: EvenIfInfeasible = False,
    yes: Yes = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Add labeled pairs to a calibration set of a running service.

    A label is A, B or tie (also model_a, model_b, both_bad, or a word of --map). A repeated pair
    counts once. All pairs become one new version.
    """
    # Checked here, because the service sees it after everything has been judged.
    check_label_noise(label_noise)
    if clusters not in (None, "one", "adjusted", "ignore"):
        raise CommandError(f"--clusters must be one, adjusted or ignore, got {clusters!r}")
    declared = _declared(groups)
    form = given_format(shape, columns, encoding)
    rows = checked_pairs(files, form, given_contradictions(contradictions))
    items = [
        Item.of(row.row, row.shape, {**row.fields, "label": row.label}) for row in rows.labelled
    ]
    with connected(url, patience_s=patience) as service:
        run = Run(
            journal=journal_path(files, f"calibrate-{name}.partial"),
            settings={"judge": service.fingerprint, "calibration": name},
            overwrite=overwrite,
            batch_size=min(batch_size, service.max_batch),
            kept=f"{name} is unchanged; rerun the command to resume",
            title="calibrating",
            keep_errors=False,
        )
        with finished(items, _scoring(service, name, declared), run) as done:
            results = [done.results[item.key] for item in items]
            failures = _failures(items, results)
            scores = [result for result in results if is_judged(result)]
            if not scores:
                _print_failures(failures)
                raise CommandError(f"no pair was judged, and {name} is unchanged")
            with resumable(run.kept):
                bodies = requests_of(
                    service,
                    scores,
                    judge=service.judge_name,
                    fingerprint=service.fingerprint,
                    label_noise=label_noise,
                    clusters=clusters,
                    groups=declared,
                    by_group=by_group,
                    replace=replace,
                    even_if_infeasible=even_if_infeasible,
                )
            upload = _upload(service, name, bodies, failed=len(failures), kept=run.kept, yes=yes)
        shown = service.get(set_path(name))
    unusable = len(rows.report.unusable)
    _print_outcome(name, upload, shown, failed=len(failures) + unusable)
    _print_failures(failures)
    if failures or unusable:
        raise typer.Exit(1)


def _failures(items: Sequence[Item], results: Sequence[Mapping[str, Any]]) -> list[_Failure]:
    return [
        _Failure(place=item.row.place, detail=result["error"]["detail"])
        for item, result in zip(items, results, strict=True)
        if not is_judged(result)
    ]


def _upload(
    service: ServiceClient,
    name: str,
    bodies: Sequence[dict[str, Any]],
    *,
    failed: int,
    kept: str,
    yes: bool,
) -> Upload:
    """Adds the judged pairs; asks first if they replace the examples of the set.

    Args:
        service: The service.
        name: Name of the set.
        bodies: The requests.
        failed: Number of pairs that were not judged.
        kept: Sentence for a run that is stopped while nothing has changed.
        yes: Do not ask.
    """
    if not bodies[0].get("replace"):
        with resumable(f"{name} may have changed already; rerun the command to resume"):
            return upload_scores(service, name, bodies)
    with resumable(kept):
        would = preview_scores(service, name, bodies)
        assert would is not None, "a replacement is one request"
        if failed:
            say(f"{failed} pairs were not judged, and will not be in the set.")
        show_change(name, would)
        ask(f"Replace the examples of {name}?", yes=yes, otherwise="nothing was replaced")
    with resumable(f"{name} has been replaced as a whole, or is unchanged; rerun the command"):
        upload = upload_scores(service, name, bodies)
    note_other_change(name, shown=would.version, made=upload.answer.version)
    return upload


def _declared(groups: str | None) -> list[str]:
    names = (name.strip() for name in (groups or "").split(","))
    try:
        return list(declared_groups(name for name in names if name))
    except ValueError as exc:
        raise CommandError(f"--groups: {exc}") from None


def _scoring(service: ServiceClient, name: str, groups: Sequence[str]) -> Ask:
    """Asks a service for the scores of labeled pairs, some of groups that the set will declare."""

    def ask(examples: Mapping[str, Any]) -> Iterator[Results]:
        def body(keys: list[str]) -> dict[str, Any]:
            body = {"calibration": name, "examples": [examples[key] for key in keys]}
            return {**body, "groups": list(groups)} if groups else body

        for part in service.post_judged("/calibrate/scores", list(examples), body):
            yield _scores(part, service)

    return ask


def _scores(part: Posted, service: ServiceClient) -> Results:
    """The scores of one request by key; a pair that failed has its error."""
    from app.cli.set_answers import Scores

    if part.reason:
        return {key: {"error": {"detail": part.reason}} for key in part.items}
    answer = read(Scores, part.answer)
    if answer.fingerprint != service.fingerprint:
        raise CommandError("the judge of the service has changed since the beginning of this run")
    failed: Results = errors_of(part, answer.errors)
    judged = [key for key in part.items if key not in failed]
    if len(judged) != len(answer.scores):
        raise unfitting("does not have one score for each judged pair")
    # As they came: they are posted again without a loss.
    return failed | dict(zip(judged, part.answer["scores"], strict=True))


def _print_outcome(name: str, upload: Upload, shown: dict[str, Any], *, failed: int) -> None:
    """Prints the set after the run.

    Args:
        name: Name of the set.
        upload: The outcome of the run.
        shown: Answer of GET /calibrations/{name}.
        failed: Number of pairs that were not judged.
    """
    from app.cli.set_answers import AssessedSet

    counts = Counter({**upload.counts, "failed": failed})
    say(f"calibration {name}, version {upload.answer.version}")
    detail = read(AssessedSet, shown)
    if detail.unlabelled:
        print_thresholds(name, detail.version, detail.n, detail.thresholds)
        say(
            f"{detail.unlabelled} pairs have no label yet: GET {set_path(name, '/next')} lists "
            "those to label next"
        )
    else:
        print_assessment(assessment_of_answer(detail), stderr=True)
    if detail.promised_for:
        say(f"pac ({detail.clusters}) promises for a random {detail.promised_for} of the traffic.")
    if detail.question_sizes is not None:
        sizes = detail.question_sizes
        say(("pairs of one question:", "bold"), f" up to {sizes.largest}; {sizes.note}.")
    for line in lines_of_groups(detail):
        say(line)
    names = ("added", "updated", "ties", "removed", "failed")
    say(", ".join(f"{count} {counts[count]}" for count in names))


def _print_failures(failures: Sequence[_Failure]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        say(("not added:", "yellow"), f" {failure.place}: {failure.detail}")
    if len(failures) > _SHOWN_FAILURES:
        say(f"and {len(failures) - _SHOWN_FAILURES} more")
