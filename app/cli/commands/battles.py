"""`scope-judge battles`: judges battles of models, for a leaderboard."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import say
from app.cli.running import options
from app.cli.running.coverage import JudgedPair, print_contradictions, print_unlike
from app.cli.running.judging import judged_into, judging, refuse_failed
from app.cli.running.rows import Item, Results, check_any, check_output, is_judged
from app.cli.summary import print_summary
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.files.battles import Battle, BattleShape, battle_rows, battle_shape
from app.files.reading import FileRow, files_of, read_rows


def battles(
    files: options.Inputs,
    out: Annotated[Path, typer.Option(help="File to write; its extension sets the format.")],
    alpha: options.Alpha = None,
    no_alpha: options.NoAlpha = False,
    guarantee: options.Guarantee = None,
    delta: options.Delta = None,
    calibration: options.CalibrationSet = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Names of columns and labels, such as question=prompt,model_a=left,A=1; also "
            "response_a, response_b, model_b, id, question_id, group, category, human, "
            "human_probability, B, tie.",
        ),
    ] = None,
    encoding: options.Encoding = None,
    overwrite: options.Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Judge battles of models, for `scope-judge leaderboard`.

    Rows need model_a, model_b, the question and two responses. Output rows have the winner, p_bar
    of model_a and a signature to cite, or an error; any error makes the exit status 1. An
    unfinished run is kept in OUT.partial.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    criterion = options.given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha)
    items, battles = _read(files, ",".join(columns) if columns else None, encoding)
    check_output(out, files_of(files), overwrite=overwrite)
    with connected(url, patience_s=patience) as client:
        info = client.info()
        found = judged_into(
            out,
            items,
            judging(client, criterion, dated=True),
            lambda results: battle_rows(_judged(items, battles, results), info),
            settings={"judge": info.fingerprint, "criterion": criterion},
            overwrite=overwrite,
        )
        judged = _judged(items, battles, found)
        pairs = [
            JudgedPair(
                question=battle.group or battle.question_id,
                result=result,
                label=battle.human,
                probability=battle.human_probability or 1.0,
            )
            for _, battle, result in judged
            if battle is not None and is_judged(result)
        ]
        models = {model for one in battles.values() for model in (one.model_a, one.model_b)}
        say(f"{len(models)} models; A is model_a:")
        places, _, results = zip(*judged, strict=True)
        print_summary(results, places)
        print_contradictions(pairs)
        # A set counts equal pairs once; they have one result.
        print_unlike(client, {id(pair.result): pair for pair in pairs}.values())
    refuse_failed(results)


def _read(
    files: Sequence[Path], columns: str | None, encoding: str | None
) -> tuple[list[Item], dict[str, Battle]]:
    """Reads all rows; returns them, and the battle of each place that has one."""
    items, battles = list[Item](), dict[str, Battle]()
    for path in files_of(files):
        rows = list(read_rows(path, encoding))
        if not rows:
            continue
        shape = _shape_of(rows, columns)
        for row in rows:
            try:
                battle = shape.battle(row.fields)
            except InvalidComparisonError as exc:
                items.append(Item.of(row, shape.comparison, exc))
            else:
                items.append(Item.of(row, shape.comparison, battle.fields))
                battles[row.place] = battle
        if shape.leaves_out_winner(rows[-1].fields):
            say(
                ("warning:", "yellow"),
                f" {path} has a column `winner`, which is not read. If it has labels of people, "
                "add --map human=winner",
            )
    check_any(items)
    _check_ids(battles)
    _note_repeated(battles)
    return items, battles


def _shape_of(rows: Sequence[FileRow], columns: str | None) -> BattleShape:
    try:
        shape = battle_shape({n: None for row in rows for n in row.fields}, columns)
    except RequestError as exc:
        raise InvalidRequestError(f"{rows[0].place}: {exc.detail}") from None
    shape.check_words(rows)
    return shape


def _check_ids(battles: Mapping[str, Battle]) -> None:
    """Refuses an id with two contents: a leaderboard could not tell which one is meant."""
    first: dict[str, tuple[str, str]] = {}
    for place, battle in battles.items():
        other, content = first.setdefault(battle.id, (place, battle.content))
        if content != battle.content:
            raise InvalidRequestError(
                f"{place} has the id of {other} and other content: give each battle its own id, or "
                "ignore the column with --map id=NONE"
            )


def _note_repeated(battles: Mapping[str, Battle]) -> None:
    """Warns of battles that are there under several ids: a leaderboard counts each."""
    ids = defaultdict[str, dict[str, None]](dict)
    for battle in battles.values():
        ids[battle.content][battle.id] = None
    repeated = [list(names) for names in ids.values() if len(names) > 1]
    if repeated:
        more = sum(len(names) - 1 for names in repeated)
        say(
            ("warning:", "yellow"),
            f" {more} {'battle has' if more == 1 else 'battles have'} the models and texts of "
            "another under a new id, such as "
            f"{repeated[0][0]} and {repeated[0][1]}. A leaderboard counts every id.",
        )


def _judged(
    items: Sequence[Item], battles: Mapping[str, Battle], results: Results
) -> list[tuple[str, Battle | None, Mapping[str, Any]]]:
    """Place, battle and result of each row."""
    places = [item.row.place for item in items]
    return [(at, battles.get(at), results[one.key]) for at, one in zip(places, items, strict=True)]
