"""`scope-judge battles`: judges battles of models, for a leaderboard."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import CommandError
from app.cli.running.battles import BattleOptions, judge_battles
from app.cli.running.options import (
    Alpha,
    BatchSize,
    CalibrationSet,
    Delta,
    DeltaFor,
    Encoding,
    Guarantee,
    HumanProbability,
    Inputs,
    NoAlpha,
    OnRay,
    Overwrite,
    RayAddress,
    RayReplicas,
    ShapeName,
    check_encoding,
    given_criterion,
    given_format,
)
from app.cli.running.schedules import JudgedRows, print_label_plan, print_schedule
from app.cli.service_client import DEFAULT_URL, PATIENCE_S, Patience, Url, is_given
from app.files.reading import STDIN


def battles(
    files: Inputs,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; its extension sets the format. --schedule-labels adds the columns "
            "to_label and human_probability."
        ),
    ] = None,
    schedule: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge nothing; plan so many more battles from the rows of earlier runs.",
        ),
    ] = None,
    schedule_labels: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge nothing; draw about so many battles of earlier runs for people to label.",
        ),
    ] = None,
    human_probability: HumanProbability = None,
    alpha: Alpha = None,
    no_alpha: NoAlpha = False,
    guarantee: Guarantee = None,
    delta: Delta = None,
    delta_for: DeltaFor = None,
    calibration: CalibrationSet = None,
    seed: Annotated[
        int,
        typer.Option(help="Seed for the order of the two responses, or for drawing labels."),
    ] = 0,
    shape: ShapeName = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="Names of columns and labels, such as question=prompt,model_a=left,A=1; also "
            "response_a, response_b, model_b, id, question_id, group, category, human, "
            "human_probability, traffic_group, B, tie.",
        ),
    ] = None,
    encoding: Encoding = None,
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

    Rows need model_a, model_b, the question and two responses. Output rows have the winner, p_bar
    of model_a and a signature to cite, or an error; any error makes the exit status 1. An
    unfinished run is kept in OUT.partial.
    """
    if schedule is not None or schedule_labels is not None:
        if schedule is not None and schedule_labels is not None:
            raise CommandError("give --schedule N or --schedule-labels N, not both")
        check_encoding(encoding)
        judged = JudgedRows(files=files, human_probability=human_probability, encoding=encoding)
        if schedule is not None:
            print_schedule(judged, schedule, out)
        elif schedule_labels is not None:
            print_label_plan(judged, schedule_labels, out, seed=seed, overwrite=overwrite)
        return
    if human_probability is not None:
        raise CommandError("--human-probability goes with --schedule or --schedule-labels")
    if out is None:
        raise CommandError("give --out FILE for the rows, or --schedule N")
    given = {"alpha": alpha, "guarantee": guarantee, "delta": delta, "delta_for": delta_for}
    options = BattleOptions(
        criterion=given_criterion({**given, "calibration": calibration}, no_alpha=no_alpha),
        form=given_format(shape, None, encoding),
        columns=columns,
        seed=seed,
        out=out.resolve(),
        overwrite=overwrite,
        keep_texts=keep_texts,
        batch_size=batch_size,
    )
    if not ray and (address is not None or replicas is not None):
        raise CommandError("--address and --replicas need --ray")
    if ray and (is_given(url) or STDIN in files):
        raise CommandError("--ray takes files or folders, and no --url")
    if ray:
        from app.cli.running.battle_bulk import judge_battles_in_bulk

        judge_battles_in_bulk(files, options, address=address, replicas=replicas)
        return
    judge_battles(files, options, url=url, patience_s=patience)
