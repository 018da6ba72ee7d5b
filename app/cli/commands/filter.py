"""`scope-judge filter`: keeps the preference pairs that the judge confirms, for DPO and others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, say
from app.cli.running.coverage import (
    judged_pairs,
    print_contradictions,
    print_ties,
    print_unlike,
    unlike_sets,
)
from app.cli.running.drawn import keep_drawn
from app.cli.running.judging import NOTHING_LOST, judging, run_into
from app.cli.running.options import (
    Alpha,
    CalibrationSet,
    ColumnMap,
    Delta,
    Encoding,
    Excel,
    Guarantee,
    Inputs,
    given_criterion,
    given_format,
)
from app.cli.running.rows import (
    Item,
    check_excel,
    check_first,
    check_output,
    delimiter_of,
    read_items,
    write_all,
)
from app.cli.running.run import finished, is_judged
from app.cli.summary import REASONS, promises
from app.core.errors import InvalidComparisonError
from app.files.preferences import preferred_of, turned_round
from app.files.reading import files_of
from app.files.results import with_result


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The decision about a pair.

    Args:
        action: "keep", "flip" or "drop".
        p_bar: Probability that the preferred response of the row is the better one; None without a
            judgment.
        risk_level: Smallest alpha that accepts the judgment; None if none does.
        reason: The reason why the pair is dropped, in words; None if it is not.
    """

    action: Literal["keep", "flip", "drop"]
    p_bar: float | None = None
    risk_level: float | None = None
    reason: str | None = None


def filter(
    files: Inputs,
    out: Annotated[
        Path,
        typer.Option(help="File for the kept pairs; its extension sets the format."),
    ],
    flip: Annotated[
        bool,
        typer.Option("--flip", help="If the judge prefers the other response, swap the two."),
    ] = False,
    review: Annotated[
        Path | None, typer.Option(help="File for the dropped pairs, with reasons.")
    ] = None,
    alpha: Alpha = None,
    guarantee: Guarantee = None,
    delta: Delta = None,
    calibration: CalibrationSet = None,
    columns: ColumnMap = None,
    encoding: Encoding = None,
    excel: Excel = False,
    overwrite: Annotated[
        bool,
        typer.Option(help="Replace --out and --review; discard an unfinished run."),
    ] = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Keep the preference pairs whose label the judge confirms.

    Pairs are dropped if the judge abstains or prefers the other response. Kept rows get the
    columns decision, p_bar and risk_level.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = given_criterion({**given, "calibration": calibration})
    items = _labeled(read_items(files, given_format(columns, encoding)))
    _check_outputs(files, out, review, overwrite=overwrite)
    check_excel(out, excel=excel)
    # A link stays, and its target is replaced.
    out = out.resolve()
    with connected(url, patience_s=patience) as client:
        run = run_into(out, client.info().fingerprint, criterion, overwrite=overwrite)
        with finished(items, judging(client, criterion), run) as done:
            results = [done.results[item.key] for item in items]
            decisions = [decided(i, r, flip=flip) for i, r in zip(items, results, strict=True)]
            keep_drawn(out, items, done.results, kept=NOTHING_LOST)
            write = partial(
                write_all,
                kept=NOTHING_LOST,
                excel=excel,
                delimiter=delimiter_of(item.row for item in items),
            )
            write(out, kept_rows(items, decisions))
            if review is not None:
                write(review.resolve(), dropped_rows(items, decisions))
        of_rows = judged_pairs(items, done.results)
        pairs = [replace(pair, label=pair.label or "A") for pair in of_rows]
        unlike = unlike_sets(client, pairs)
    print_contradictions(pairs)
    print_ties(of_rows)
    _print_summary(decisions, results)
    print_unlike(unlike)
    failed = sum(not is_judged(result) for result in results)
    if failed:
        raise CommandError(f"{failed} of {len(results)} pairs got no judgment and were dropped")


def _labeled(items: Sequence[Item]) -> list[Item]:
    """The items; a row whose label is not known has that error."""
    checked = [_checked(item) for item in items]
    check_first(checked)
    return checked


def _checked(item: Item) -> Item:
    try:
        preferred_of(item.row.fields, item.shape)
    except InvalidComparisonError as exc:
        return Item.of(item.row, item.shape, exc)
    return item


def _check_outputs(
    inputs: Sequence[Path], out: Path, review: Path | None, *, overwrite: bool
) -> None:
    paths = files_of(inputs)
    check_output(out, paths, overwrite=overwrite)
    check_output(review, [*paths, out], overwrite=overwrite)
    if review is not None and review.resolve() == out.resolve():
        raise CommandError("--out and --review must be two files")


def decided(item: Item, result: Mapping[str, Any], *, flip: bool) -> Decision:
    """The decision about one pair."""
    if "error" in result:
        error = result["error"]
        return Decision(action="drop", reason=f"{error['code']}: {error['detail']}")
    preferred = preferred_of(item.row.fields, item.shape)
    p_bar = result["p_bar"]
    if p_bar is not None and preferred == "B":
        p_bar = 1.0 - p_bar
    judged = partial(Decision, risk_level=result["risk_level"])
    if preferred == "tie":
        return judged(action="drop", p_bar=p_bar, reason="the label is a tie")
    if result["verdict"] == "abstain":
        reason = REASONS.get(result["reason"], result["reason"])
        return judged(action="drop", p_bar=p_bar, reason=reason)
    if result["verdict"] == preferred:
        return judged(action="keep", p_bar=p_bar)
    if flip:
        # The row is written with the other response preferred.
        return judged(action="flip", p_bar=1.0 - p_bar)
    return judged(action="drop", p_bar=p_bar, reason="the judge prefers the other response")


def kept_rows(items: Sequence[Item], decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """The kept and flipped rows in order, with decision, p_bar and risk_level."""
    taken = _columns(items)
    rows = []
    for item, decision in zip(items, decisions, strict=True):
        if decision.action == "drop":
            continue
        row = item.row.fields
        if decision.action == "flip":
            row = turned_round(row, item.shape)
        rows.append(with_result(row, _shown(decision), taken=taken, flat=True))
    return rows


def dropped_rows(items: Sequence[Item], decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """The dropped rows in order, each with the reason."""
    taken = _columns(items)
    return [
        with_result(
            item.row.fields,
            {**_shown(decision), "reason": decision.reason},
            taken=taken,
            flat=True,
        )
        for item, decision in zip(items, decisions, strict=True)
        if decision.action == "drop"
    ]


def _columns(items: Sequence[Item]) -> set[str]:
    return {column for item in items for column in item.row.fields}


def _shown(decision: Decision) -> dict[str, Any]:
    return {
        "decision": decision.action,
        "p_bar": decision.p_bar,
        "risk_level": decision.risk_level,
    }


def _print_summary(decisions: Sequence[Decision], results: Sequence[Mapping[str, Any]]) -> None:
    counts: Counter[str] = Counter(decision.action for decision in decisions)
    say(
        f"{len(decisions)} pairs: ",
        (f"kept {counts['keep']}, flipped {counts['flip']}, dropped {counts['drop']}", "bold"),
    )
    # An error's detail differs from row to row; its code does not.
    reasons = Counter(str(d.reason).partition(": ")[0] for d in decisions if d.action == "drop")
    for reason, count in reasons.most_common():
        say(f"  dropped, {count}: {reason}")
    judgments = [result for result in results if "error" not in result]
    for promise in promises(judgments):
        say(promise)
    _print_wrong_pairs(counts, judgments)


def _print_wrong_pairs(counts: Counter[str], judgments: Sequence[Mapping[str, Any]]) -> None:
    """Prints the bound on the wrong pairs of the output, if all verdicts have one alpha."""
    accepted = [judgment for judgment in judgments if judgment["verdict"] != "abstain"]
    alphas = {judgment["alpha"] for judgment in accepted}
    written = counts["keep"] + counts["flip"]
    if len(alphas) != 1 or None in alphas or not written:
        return
    # A wrong pair of the output has a wrong verdict, and so have some of the dropped pairs.
    most = min(written, int(alphas.pop() * len(accepted)))
    # Only "pac" has a delta.
    bounded = all(judgment["delta"] is not None for judgment in accepted)
    say(
        f"So {'at most' if bounded else 'near'} {most} of the {written} written pairs are the "
        f"wrong way round ({most / written:.0%}), in the same sense."
    )
    if counts["flip"]:
        say("The flipped pairs alone may be wrong more often: label and judge disagree on them.")
