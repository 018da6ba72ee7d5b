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
            help="File for the rows, in the format of its ending, as for `judge`. With "
            "--schedule: file for the pairs; with --schedule-labels: file for all rows, with "
            "to_label and the new human_probability; default: print only."
        ),
    ] = None,
    schedule: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge nothing: read the rows of earlier runs, and print which pairs of models "
            "this many further battles should compare.",
        ),
    ] = None,
    schedule_labels: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Judge nothing: draw about this many battles of earlier runs for people to label, "
            "more often where a label narrows the debiased intervals more. `to_label` marks them.",
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
        typer.Option(
            help="Seed of the order in which the two responses are shown, or of the drawn labels."
        ),
    ] = 0,
    shape: ShapeName = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="Names of columns: question=prompt,response_a=left,response_b=right,"
            "model_a=left_model,model_b=right_model; also id, question_id, group, category, human, "
            "human_probability and traffic_group, the declared group that the judge gets, and "
            "words of the label: A=1,B=2,tie=equal.",
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

    A row has model_a and model_b, the question and the two responses. The output has one row for
    each, in order, with the winner, p_bar (of model_a) and a signature that a paper can cite. A row
    without a judgment has an error and no winner, and the exit status is then 1.

    If interrupted, rerun the command; it resumes where it stopped. Results so far are kept in
    OUT.partial.
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
