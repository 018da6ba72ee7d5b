"""`scope-judge decide`: takes results to another alpha without judging again."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.console import CommandError
from app.cli.running.coverage import (
    decided_pairs,
    print_contradictions,
    print_unlike,
    unlike_set,
)
from app.cli.running.options import (
    ColumnMap,
    DeltaFor,
    Encoding,
    Excel,
    Flat,
    Inputs,
    NoAlpha,
    check_label_noise,
    check_share,
    given_format,
)
from app.cli.running.rows import check_excel, check_output, delimiter_of, is_table, write_all
from app.cli.service_client import DEFAULT_URL, Url
from app.cli.summary import print_summary
from app.core.comparison import Criterion, Guarantee, shared_delta
from app.core.errors import InvalidRequestError
from app.files.battle_rows import decided_rows
from app.files.reading import FileRow, InputFormat, files_of, read_rows
from app.files.results import OutputColumns, ResultColumns, result_columns

# numpy and scipy take a while to import: functions import what needs them.
if TYPE_CHECKING:
    from app.cli.acceptance import RuleOfJudge

_DELTA = 0.10
_CALIBRATION = "default"


def decide(
    files: Inputs,
    alpha: Annotated[
        float | None, typer.Option(help="Largest share of wrong verdicts, in (0, 1).")
    ] = None,
    no_alpha: NoAlpha = False,
    guarantee: Annotated[str, typer.Option(help="marginal or pac.")] = "marginal",
    delta: Annotated[
        float | None,
        typer.Option(help="Probability that the pac guarantee fails.  [default: 0.1]"),
    ] = None,
    delta_for: DeltaFor = None,
    calibration: Annotated[
        str | None,
        typer.Option(help="Name of the service's calibration set.  [default: default]"),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Instead of a service: results of `judge` with labels, or an exported set."
        ),
    ] = None,
    label_noise: Annotated[
        float, typer.Option(help="With --labels: probability in [0, 0.5) that a label is flipped.")
    ] = 0.0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; its extension sets the format.  [default: JSONL on stdout]"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace --out.")] = False,
    flat: Flat = None,
    excel: Excel = False,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Apply another alpha or another set to results of `judge FILE` or `battles`.

    Nothing is judged again. Thresholds come from a set of the service, or from --labels, whose
    columns --map names.
    """
    criterion = _criterion(alpha, guarantee, delta, delta_for, calibration, no_alpha=no_alpha)
    if labels is not None and calibration is not None:
        raise CommandError("give --calibration of a service, or --labels, not both")
    check_label_noise(label_noise)
    paths = files_of(files)
    check_output(out, paths, overwrite=overwrite)
    check_excel(out, excel=excel)
    form = given_format(None, columns, encoding)
    if columns is not None and labels is None:
        raise CommandError("--map names the columns of --labels, which is not given")
    parts = [list(read_rows(path, encoding)) for path in paths]
    layouts = [result_columns(row.fields for row in part) for part in parts]
    if not any(layouts):
        raise InvalidRequestError(f"{files[0]} has no results of `scope-judge judge FILE`")
    judge_rule = _judge_rule(criterion, labels, label_noise, form, url)
    rows = [row for part in parts for row in part]
    results = [
        _decided(row, layout, judge_rule)
        for part, layout in zip(parts, layouts, strict=True)
        for row in part
    ]
    of_battles = [layout is not None and layout.of_battles for layout in layouts]
    if any(of_battles):
        if not all(of_battles):
            raise InvalidRequestError("some files have rows of battles and others have not")
        decided = decided_rows([row.fields for row in rows], results)
        _write(decided, results, rows, judge_rule, out, excel=excel)
        return
    kept = [
        row.fields if layout is None else layout.without(row.fields)
        for part, layout in zip(parts, layouts, strict=True)
        for row in part
    ]
    if flat is None:
        was_flat = any(layout is not None and layout.nested is None for layout in layouts)
        flat = was_flat or is_table(out)
    written = OutputColumns({column for row in kept for column in row}, flat=flat)
    decided = [written.row(row, result) for row, result in zip(kept, results, strict=True)]
    _write(decided, results, rows, judge_rule, out, excel=excel)


def _write(
    decided: Sequence[dict[str, Any]],
    results: Sequence[dict[str, Any]],
    rows: Sequence[FileRow],
    judge_rule: "RuleOfJudge",
    out: Path | None,
    *,
    excel: bool,
) -> None:
    """Writes the rows, and prints the summary and whether the promise covers the rows.

    Raises:
        CommandError: A row has no judgment.
    """
    write_all(out, decided, excel=excel, delimiter=delimiter_of(rows))
    pairs = decided_pairs(rows, results)
    print_contradictions(pairs)
    print_summary(results, [row.place for row in rows], asked=0, seconds=0.0)
    calibration = judge_rule.calibration
    if calibration is not None:
        unlike = unlike_set(calibration, pairs, n=calibration.n)
        print_unlike([] if unlike is None else [unlike], "")
    failed = sum("error" in result for result in results)
    if failed:
        raise CommandError(f"{failed} of {len(results)} rows have no judgment; see their `error`")


def _criterion(
    alpha: float | None,
    guarantee: str,
    delta: float | None,
    delta_for: int | None,
    calibration: str | None,
    *,
    no_alpha: bool,
) -> Criterion:
    if (alpha is None) != no_alpha:
        raise CommandError("give --alpha, or --no-alpha for verdicts without a guarantee")
    if guarantee not in ("marginal", "pac"):
        raise CommandError(f"--guarantee must be marginal or pac, got {guarantee}")
    if guarantee != "pac":
        if delta is not None:
            raise CommandError("--delta needs --guarantee pac")
        if delta_for is not None and delta_for > 1:
            raise CommandError("--delta-for needs --guarantee pac: marginal has no delta to divide")
    check_share("alpha", alpha)
    check_share("delta", delta)
    kind: Guarantee = "pac" if guarantee == "pac" else "marginal"
    level = shared_delta(delta or _DELTA, delta_for or 1) if kind == "pac" else None
    return Criterion(
        alpha=alpha, guarantee=kind, delta=level, calibration=calibration or _CALIBRATION
    )


def _judge_rule(
    criterion: Criterion, labels: Path | None, label_noise: float, form: InputFormat, url: str
) -> "RuleOfJudge":
    from app.cli.acceptance import rule_of_file, rule_of_service

    if labels is None:
        return rule_of_service(criterion, url)
    return rule_of_file(criterion, labels, label_noise, form)


def _decided(
    row: FileRow, layout: ResultColumns | None, judge_rule: "RuleOfJudge"
) -> dict[str, Any]:
    """The result of a row under the criterion; an error stays an error.

    Raises:
        InvalidRequestError: Another judge made the result.
    """
    from app.cli.acceptance import score_of
    from app.service.judging.decisions import decide as decided
    from app.wire.answers import JudgmentOut
    from app.wire.problems import problem_of

    result = {} if layout is None else layout.result(row.fields)
    if "error" in result:
        return {"error": result["error"]}
    score = score_of(result)
    if score is None:
        problem = problem_of(InvalidRequestError("the row has no scores of a judge"))
        return {"error": problem.model_dump(mode="json", exclude_none=True)}
    judge = result.get("judge")
    if judge_rule.judge is not None and judge != judge_rule.judge:
        raise InvalidRequestError(
            f"{row.place}: the result is of the judge {judge}, and the labels are of "
            f"{judge_rule.judge}"
        )
    # A judgment that was off task stays so, whatever the limit of that service was.
    rule = replace(judge_rule.rule, min_label_mass=math.inf) if score.off_task else judge_rule.rule
    judgment = decided(
        score.preference_at(rule.temperature),
        rule,
        label_mass=score.label_mass,
        judge=str(judge),
        orders=score.orders,
    )
    return JudgmentOut.of(judgment, None).model_dump(mode="json", exclude={"id"})
