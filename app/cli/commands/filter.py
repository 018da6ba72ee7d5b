"""`scope-judge filter`: keeps the preference pairs that the judge confirms, for DPO and others."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import say
from app.cli.running import options
from app.cli.running.coverage import judged_pairs, print_contradictions, print_unlike
from app.cli.running.judging import judged_into, judging, refuse_failed
from app.cli.running.rows import Item, Results, check_any, check_output, read_items
from app.cli.summary import REASONS, print_errors, print_promises
from app.core.comparison import Label
from app.core.errors import InvalidComparisonError
from app.files.reading import files_of
from app.files.results import with_result
from app.files.shapes import is_empty


def filter(
    files: options.Inputs,
    out: Annotated[
        Path,
        typer.Option(help="File for the kept pairs; its extension sets the format."),
    ],
    alpha: options.Alpha = None,
    guarantee: options.Guarantee = None,
    delta: options.Delta = None,
    calibration: options.CalibrationSet = None,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
    overwrite: options.Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Keep the preference pairs whose label the judge confirms.

    Pairs are dropped if the judge abstains or prefers the other response. Kept rows get the
    columns p_bar and risk_level.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration})
    items = read_items(files, options.given_format(columns, encoding))
    labels = {item.shape.label for item in items if item.shape.label in item.row.fields}
    items = [_checked(item, labels) for item in items]
    labeled = [item for item in items if not is_empty(item.row.fields.get(item.shape.label))]
    # A wrong map of labels would fail every labeled row.
    check_any(labeled or items)
    check_output(out, files_of(files), overwrite=overwrite)
    with connected(url, patience_s=patience) as client:
        found = judged_into(
            out,
            items,
            judging(client, criterion),
            lambda results: _kept_rows(items, results),
            settings={"judge": client.info().fingerprint, "criterion": criterion},
            overwrite=overwrite,
        )
        pairs = [replace(p, label=p.label or "A") for p in judged_pairs(items, found)]
        results = [found[item.key] for item in items]
        _print_summary(items, results)
        print_contradictions(pairs)
        print_unlike(client, pairs)
    refuse_failed(results)


def _checked(item: Item, labels: Collection[str]) -> Item:
    """The item, with the error of a row whose label is not known.

    JSON Lines may leave out a label, so `labels` are the columns of labels of other rows.
    """
    row, shape = item.row.fields, item.shape
    try:
        if shape.label_in(row) is None and shape.label in labels:
            raise InvalidComparisonError(f"there is no label in {shape.label}")
    except InvalidComparisonError as exc:
        return Item.of(item.row, item.shape, exc)
    return item


def _preferred(item: Item) -> Label:
    """The label of a row; without a label, the first response is the preferred one."""
    return item.shape.label_in(item.row.fields) or "A"


def _reason(item: Item, result: Mapping[str, Any]) -> str | None:
    """Says why a pair is dropped; None if it is kept."""
    if "error" in result:
        return "an error"
    preferred = _preferred(item)
    if preferred == "tie":
        return "the label is a tie"
    if result["verdict"] == "abstain":
        return REASONS.get(result["reason"], str(result["reason"]))
    return None if result["verdict"] == preferred else "the judge prefers the other response"


def _kept_rows(items: Sequence[Item], results: Results) -> list[dict[str, Any]]:
    """The kept rows in order, with p_bar of the preferred response and risk_level."""
    taken = {column for item in items for column in item.row.fields}
    rows = []
    for item in items:
        result = results[item.key]
        if _reason(item, result) is None:
            p_bar = result["p_bar"] if _preferred(item) == "A" else 1.0 - result["p_bar"]
            shown = {"p_bar": p_bar, "risk_level": result["risk_level"]}
            rows.append(with_result(item.row.fields, shown, taken=taken, flat=True))
    return rows


def _print_summary(items: Sequence[Item], results: Sequence[Mapping[str, Any]]) -> None:
    dropped = Counter(
        reason
        for item, result in zip(items, results, strict=True)
        if (reason := _reason(item, result)) is not None
    )
    kept = len(items) - dropped.total()
    say(f"{len(items)} pairs: ", (f"kept {kept}, dropped {dropped.total()}", "bold"))
    for reason, count in dropped.most_common():
        say(f"  dropped, {count}: {reason}")
    print_errors(results, [item.row.place for item in items])
    print_promises(results)
    accepted = [
        result for result in results if "error" not in result and result["verdict"] != "abstain"
    ]
    alphas = {result["alpha"] for result in accepted}
    if len(alphas) != 1 or None in alphas or not kept:
        return
    # A wrong pair of the output has a wrong verdict, and so have some of the dropped pairs.
    most = min(kept, int(alphas.pop() * len(accepted)))
    # Only "pac" has a delta.
    bounded = all(result["delta"] is not None for result in accepted)
    say(
        f"So {'at most' if bounded else 'near'} {most} of the {kept} kept pairs are the wrong way "
        f"round ({most / kept:.0%}), in the same sense."
    )
