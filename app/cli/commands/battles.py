"""`scope-judge battles`: judges battles of models, for a leaderboard."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import DEFAULT_URL, PATIENCE_S, Patience, Url, connected
from app.cli.console import CommandError, say
from app.cli.running.coverage import (
    JudgedPair,
    print_contradictions,
    print_unlike,
    unlike_sets,
)
from app.cli.running.drawn import keep_drawn
from app.cli.running.judging import NOTHING_LOST, judging, run_into
from app.cli.running.options import (
    Alpha,
    CalibrationSet,
    Delta,
    Encoding,
    Guarantee,
    Inputs,
    NoAlpha,
    Overwrite,
    check_encoding,
    given_criterion,
)
from app.cli.running.rows import (
    Item,
    check_first,
    check_output,
    delimiter_of,
    write_all,
)
from app.cli.running.run import Results, finished, is_judged
from app.cli.summary import print_summary
from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.files.battle_rows import JudgedBattle, Provenance, battle_rows, of_models
from app.files.battles import Battle, BattleShape, Winner, battle_shape
from app.files.reading import FileRow, files_of, read_rows

_LABELS: Mapping[Winner, Label] = {"model_a": "A", "model_b": "B", "tie": "tie"}


def battles(
    files: Inputs,
    out: Annotated[Path, typer.Option(help="File to write; its extension sets the format.")],
    alpha: Alpha = None,
    no_alpha: NoAlpha = False,
    guarantee: Guarantee = None,
    delta: Delta = None,
    calibration: CalibrationSet = None,
    seed: Annotated[int, typer.Option(help="Seed for the order of the two responses.")] = 0,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="Names of columns and labels, such as question=prompt,model_a=left,A=1; also "
            "response_a, response_b, model_b, id, question_id, group, category, human, "
            "human_probability, B, tie.",
        ),
    ] = None,
    encoding: Encoding = None,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Write the question and the responses, too.")
    ] = False,
    overwrite: Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
) -> None:
    """Judge battles of models, for `scope-judge leaderboard`.

    Rows need model_a, model_b, the question and two responses. Output rows have the winner, p_bar
    of model_a and a signature to cite, or an error; any error makes the exit status 1. An
    unfinished run is kept in OUT.partial.
    """
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta}
    check_encoding(encoding)
    options = _Options(
        criterion=given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha),
        encoding=encoding,
        columns=columns,
        seed=seed,
        out=out.resolve(),
        overwrite=overwrite,
        keep_texts=keep_texts,
    )
    _judge(files, options, url=url, patience_s=patience)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A row of the input.

    Args:
        item: The row and the comparison as the judge gets it.
        battle: The battle; None if the row has none.
    """

    item: Item
    battle: Battle | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Options:
    """How a run reads, judges and writes."""

    criterion: Mapping[str, Any]
    encoding: str | None
    columns: str | None
    seed: int
    out: Path
    overwrite: bool
    keep_texts: bool


def _judge(files: Sequence[Path], options: _Options, *, url: str, patience_s: float) -> None:
    """Judges battles with a running service; an interrupted run resumes."""
    begun = time.monotonic()
    entries = _read(files, options)
    items = [entry.item for entry in entries]
    with connected(url, patience_s=patience_s) as client:
        info = client.info()
        provenance = Provenance(
            judge=info.judge,
            fingerprint=info.fingerprint,
            template=info.template,
            version=info.version,
            seed=options.seed,
        )
        run = run_into(
            options.out,
            info.fingerprint,
            options.criterion,
            overwrite=options.overwrite,
            seed=options.seed,
        )
        with finished(items, judging(client, options.criterion, dated=True), run) as done:
            keep_drawn(options.out, items, done.results, kept=NOTHING_LOST)
            _write(entries, done.results, provenance=provenance, options=options)
        judged = _judged(entries, done.results, options.seed)
        unlike = unlike_sets(client, _judged_pairs(judged))
    seconds = time.monotonic() - begun
    _print(judged, asked=done.asked, seconds=seconds)
    print_unlike(unlike)
    _refuse_failed(judged)


def _read(files: Sequence[Path], options: _Options) -> list[_Entry]:
    """Reads all rows, and checks the output before anything is judged."""
    paths = files_of(files)
    entries: list[_Entry] = []
    for path in paths:
        shape: BattleShape | None = None
        for row in read_rows(path, options.encoding):
            shape = shape or _shape_of(row, options)
            entries.append(_entry(row, shape, options.seed))
        if shape is not None and shape.leaves_out_winner(entries[-1].item.row.fields):
            say(
                ("warning:", "yellow"),
                f" {path} has a column `winner`, which is not read. If it has labels of people, "
                "add --map human=winner",
            )
    if entries[0].battle is None:
        check_first([entry.item for entry in entries])
    _check_ids(entries)
    _note_repeated(entries)
    check_output(options.out, paths, overwrite=options.overwrite)
    return entries


def _shape_of(row: FileRow, options: _Options) -> BattleShape:
    try:
        return battle_shape(row.fields, options.columns)
    except RequestError as exc:
        raise InvalidRequestError(f"{row.place}: {exc.detail}") from None


def _entry(row: FileRow, shape: BattleShape, seed: int) -> _Entry:
    try:
        battle = shape.battle(row.fields)
    except InvalidComparisonError as exc:
        return _Entry(item=Item.of(row, shape.comparison, exc), battle=None)
    shown = battle.fault or battle.shown(seed)
    return _Entry(item=Item.of(row, shape.comparison, shown), battle=battle)


def _check_ids(entries: Sequence[_Entry]) -> None:
    """Refuses an id with two contents: a leaderboard could not tell which one is meant."""
    first: dict[str, _Entry] = {}
    for entry in entries:
        if entry.battle is None:
            continue
        other = first.setdefault(entry.battle.id, entry)
        assert other.battle is not None
        if other.battle.content != entry.battle.content:
            raise InvalidRequestError(
                f"{entry.item.row.place} has the id of {other.item.row.place} and other content: "
                "give each battle its own id, or ignore the column with --map id=NONE"
            )


def _note_repeated(entries: Sequence[_Entry]) -> None:
    """Warns of battles that are there under several ids: a leaderboard counts each."""
    ids = defaultdict[str, dict[str, None]](dict)
    for entry in entries:
        if entry.battle is not None:
            ids[entry.battle.content][entry.battle.id] = None
    repeated = [list(names) for names in ids.values() if len(names) > 1]
    if repeated:
        more = sum(len(names) - 1 for names in repeated)
        say(
            ("warning:", "yellow"),
            f" {more} {'battle has' if more == 1 else 'battles have'} the models and texts of "
            "another under a new id, such as "
            f"{repeated[0][0]} and {repeated[0][1]}. A leaderboard counts every id.",
        )


def _judged(entries: Sequence[_Entry], results: Results, seed: int) -> list[JudgedBattle]:
    """Each row with its result, in which A is model_a."""
    return [
        JudgedBattle(
            place=entry.item.row.place,
            battle=entry.battle,
            result=of_models(
                results[entry.item.key],
                swapped=entry.battle is not None and entry.battle.is_swapped(seed),
            ),
        )
        for entry in entries
    ]


def _write(
    entries: Sequence[_Entry], results: Results, *, provenance: Provenance, options: _Options
) -> None:
    """Writes the rows of all battles."""
    rows = battle_rows(_judged(entries, results, options.seed), provenance)
    if options.keep_texts:
        texts = ({n: e.item.row.fields.get(n) for n in e.item.shape.texts} for e in entries)
        rows = [{**row, **kept} for row, kept in zip(rows, texts, strict=True)]
    delimiter = delimiter_of(entry.item.row for entry in entries)
    write_all(options.out, rows, kept=NOTHING_LOST, delimiter=delimiter)


def _judged_pairs(judged: Sequence[JudgedBattle]) -> list[JudgedPair]:
    """The battles that have a judgment; A is model_a."""
    return [
        JudgedPair(
            question=row.battle.group or row.battle.question_id,
            result=row.result,
            label=None if row.battle.human is None else _LABELS[row.battle.human],
            probability=row.battle.human_probability or 1.0,
        )
        for row in judged
        if row.battle is not None and is_judged(row.result)
    ]


def _print(judged: Sequence[JudgedBattle], *, asked: int, seconds: float) -> None:
    """Prints what became of the battles."""
    print_contradictions(_judged_pairs(judged))
    battles = [row.battle for row in judged if row.battle is not None]
    models = {model for battle in battles for model in (battle.model_a, battle.model_b)}
    say(f"{len(models)} models; A is model_a:")
    shown, places = [row.result for row in judged], [row.place for row in judged]
    print_summary(shown, places, asked=asked, seconds=seconds)


def _refuse_failed(judged: Sequence[JudgedBattle]) -> None:
    """Ends the command with an error if a battle got no judgment."""
    failed = sum(not is_judged(row.result) for row in judged)
    if failed:
        raise CommandError(f"{failed} of {len(judged)} battles got no judgment; see their `error`")
