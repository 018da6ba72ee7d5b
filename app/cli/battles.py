"""`scope-judge battles`: judges battles of models, for a leaderboard."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from app.cli.asking import ROWS_PER_REQUEST, Results, Run, judged_with_journal, write_all
from app.cli.comparisons import Inputs, Item, ShapeName, comparison_key, given_shape
from app.cli.console import console, failure, print_sentence
from app.cli.criterion import (
    CalibrationSet,
    Delta,
    DeltaFor,
    Guarantee,
    NoAlpha,
    given_criterion,
)
from app.cli.file_run import stoppable
from app.cli.output_file import check_output
from app.cli.run_options import BatchSize, OnRay, Overwrite, RayAddress, RayReplicas
from app.cli.service_client import DEFAULT_URL, PATIENCE_S, Patience, Url, connected, is_given
from app.cli.summary import print_summary
from app.core.errors import InvalidComparisonError, InvalidRequestError, RequestError
from app.files.battle_rows import Outcome, Source, battle_rows, of_models
from app.files.battles import Battle, BattleShape, battle_shape
from app.files.reading import STDIN, Row, files_of, read_rows
from app.files.shapes import Shape


class Entry(NamedTuple):
    """A row of the input.

    Args:
        item: The row and the comparison as the judge gets it.
        battle: The battle; None if the row has none.
    """

    item: Item
    battle: Battle | None


class BattleOptions(NamedTuple):
    """How a run reads, judges and writes.

    Args:
        criterion: Fields of the criterion that the command line sets.
        shape: How the rows hold their texts; None to recognise it for each file.
        columns: Map of columns; None for none.
        seed: Seed of the order in which the responses are shown.
        out: File of the rows.
        overwrite: Replace `out`, and drop an unfinished run with other settings.
        keep_texts: Write the question and the responses, too.
        batch_size: Largest number of comparisons in one request, or in one part; None for the
            default.
    """

    criterion: Mapping[str, Any]
    shape: Shape | None
    columns: str | None
    seed: int
    out: Path
    overwrite: bool
    keep_texts: bool
    batch_size: int | None


def battles(
    files: Inputs,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the rows, in the format of its ending, as for `judge`. With "
            "--schedule: for the pairs; default: only the screen."
        ),
    ] = None,
    schedule: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge nothing: read the rows of earlier runs, and print which pairs of models "
            "so many further battles should be of.",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Largest share of wrong verdicts, instead of the service's default."),
    ] = None,
    no_alpha: NoAlpha = False,
    guarantee: Guarantee = None,
    delta: Delta = None,
    delta_for: DeltaFor = None,
    calibration: CalibrationSet = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the order in which the two responses are shown.")
    ] = 0,
    shape: ShapeName = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="Names of columns: question=prompt,response_a=left,response_b=right,"
            "model_a=left_model,model_b=right_model; also id, question_id, group, human and "
            "human_probability.",
        ),
    ] = None,
    keep_texts: Annotated[
        bool, typer.Option("--keep-texts", help="Write the question and the responses, too.")
    ] = False,
    batch_size: BatchSize = None,
    overwrite: Overwrite = False,
    patience: Patience = PATIENCE_S,
    url: Url = DEFAULT_URL,
    ray: OnRay = False,
    address: RayAddress = None,
    replicas: RayReplicas = None,
) -> None:
    """Judge battles of models, for `scope-judge leaderboard`.

    A row has model_a and model_b, the question and the two responses. The output has one row for
    each, in order, with the winner, p_bar (of model_a) and a signature that a paper can cite. A row
    without a judgment has an error and no winner, and the exit status is then 1.

    If the command is stopped, run it again: it goes on with the rest. Results so far are kept in
    OUT.partial.
    """
    if schedule is not None:
        # Imported late: numpy takes a while.
        from app.cli.battle_schedule import print_schedule

        print_schedule(files, schedule, out)
        return
    if out is None:
        raise failure("give --out FILE for the rows, or --schedule N")
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta, "delta_for": delta_for}
    options = BattleOptions(
        criterion=given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha),
        shape=given_shape(shape, columns=None),
        columns=columns,
        seed=seed,
        out=out.resolve(),
        overwrite=overwrite,
        keep_texts=keep_texts,
        batch_size=batch_size,
    )
    if not ray and (address is not None or replicas is not None):
        raise failure("--address and --replicas need --ray")
    if ray and (is_given(url) or STDIN in files):
        raise failure("--ray takes files or folders, and no --url")
    if ray:
        from app.cli.battle_bulk import judge_battles_in_bulk

        judge_battles_in_bulk(files, options, address=address, replicas=replicas)
        return
    _judge(files, options, url, patience)


def _judge(files: Sequence[Path], options: BattleOptions, url: str, patience_s: float) -> None:
    begun = time.monotonic()
    with stoppable(options.out):
        entries = read_battles(files, options)
        run = Run(
            options.out,
            options.overwrite,
            options.batch_size or ROWS_PER_REQUEST,
            settings={"seed": options.seed},
            dated=True,
        )
        with connected(url, patience_s=patience_s) as service:
            source = Source(
                *(service.judge_name, service.fingerprint, service.template, service.version),
                seed=options.seed,
            )
            write = partial(write_battles, entries, source=source, options=options)
            results, asked = judged_with_journal(
                [entry.item for entry in entries], options.criterion, service, run, write
            )
    print_battles(entries, results, source, asked=asked, seconds=time.monotonic() - begun)


def read_battles(files: Sequence[Path], options: BattleOptions) -> list[Entry]:
    """Reads all rows, and checks the output before anything is judged.

    Raises:
        InvalidRequestError: A file cannot be read, or an id has two contents.
        typer.Exit: The first row has no battle, or the output must not be written.
    """
    paths = files_of(files)
    entries: list[Entry] = []
    for path in paths:
        found: BattleShape | None = None
        for row in read_rows(path):
            found = found or _shape_of(row, options)
            entries.append(_entry(row, found, options.seed))
    first = entries[0].item
    if isinstance(first.fields, InvalidComparisonError):
        # The other rows will hardly be better, and a wrong map would fail thousands of them.
        raise failure(f"{first.row.place}: {first.fields.detail}")
    _check_ids(entries)
    check_output(options.out, paths, overwrite=options.overwrite)
    return entries


def _shape_of(row: Row, options: BattleOptions) -> BattleShape:
    try:
        return battle_shape(row.fields, options.shape, options.columns)
    except RequestError as exc:
        raise InvalidRequestError(f"{row.place}: {exc.detail}") from None


def _entry(row: Row, shape: BattleShape, seed: int) -> Entry:
    try:
        battle = shape.battle(row.fields)
    except InvalidComparisonError as exc:
        return Entry(Item(row, shape.comparison, exc, row.place), None)
    shown = battle.shown(seed)
    return Entry(Item(row, shape.comparison, shown, comparison_key(shown)), battle)


def _check_ids(entries: Sequence[Entry]) -> None:
    """Refuses an id with two contents: a leaderboard could not tell which one is meant."""
    first: dict[str, Entry] = {}
    for entry in entries:
        if entry.battle is None:
            continue
        other = first.setdefault(entry.battle.id, entry)
        assert other.battle is not None
        if other.battle.content != entry.battle.content:
            raise InvalidRequestError(
                f"{entry.item.row.place} has the id of {other.item.row.place} and other content: "
                "give each battle an id of its own, or leave the column out with --map id=NONE"
            )


def outcomes(entries: Sequence[Entry], results: Results, seed: int) -> list[Outcome]:
    """Each row with its result, in which A is model_a."""
    return [
        Outcome(
            item.row.place,
            battle,
            of_models(results[item.key], swapped=battle is not None and battle.is_swapped(seed)),
        )
        for item, battle in entries
    ]


def write_battles(
    entries: Sequence[Entry], results: Results, *, source: Source, options: BattleOptions
) -> None:
    """Writes the rows of all battles.

    Raises:
        typer.Exit: The file cannot be written.
    """
    rows = battle_rows(outcomes(entries, results, options.seed), source)
    if options.keep_texts:
        texts = ({n: e.item.row.fields.get(n) for n in e.item.shape.texts} for e in entries)
        rows = [{**row, **kept} for row, kept in zip(rows, texts, strict=True)]
    write_all(options.out, rows)


def print_battles(
    entries: Sequence[Entry],
    results: Results,
    source: Source,
    *,
    asked: int,
    seconds: float,
) -> None:
    """Prints what became of the battles.

    Raises:
        typer.Exit: A battle got no judgment.
    """
    found = outcomes(entries, results, source.seed)
    models = {
        m for each in found if each.battle for m in (each.battle.model_a, each.battle.model_b)
    }
    console.print(f"{len(models)} models; A is model_a:", highlight=False)
    judged, places = [each.result for each in found], [each.place for each in found]
    print_summary(judged, places, asked=asked, seconds=seconds)
    signatures = {source.signature(result) for result in judged if "error" not in result}
    if len(signatures) > 1:
        print_sentence(
            f"[yellow]warning:[/] the rows have {len(signatures)} signatures, because the "
            "calibration or the criterion changed within the run. A leaderboard takes them for as "
            "many judges: with --overwrite all battles are judged again."
        )
    failed = sum("error" in result for result in judged)
    if failed:
        raise failure(f"{failed} of {len(found)} battles got no judgment; see their `error`")
