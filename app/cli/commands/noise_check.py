"""`scope-judge noise-check`: measures how far a judge's scores depend on the pairs around them."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from app.judges.checking import JudgeCheck
    from app.settings import Settings


def noise_check(
    judge: Annotated[
        str | None, typer.Option(help="Judge to load (see `evaluate`).  [default: SCOPE_MODEL]")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Largest accepted uncertainty in nats, see GET /calibrations/NAME.  "
            "[default: one that accepts half]"
        ),
    ] = None,
) -> None:
    """Measure how much a judge's scores depend on the other pairs in a batch.

    Exits with status 1 if more than 1% of the verdicts change, or if scores tie.
    """
    import asyncio

    from app.cli.console import CommandError, say
    from app.settings import read_settings

    if threshold is not None and not threshold >= 0.0:
        raise CommandError(f"--threshold must be at least 0, got {threshold}")
    settings = read_settings(**({} if judge is None else {"model": judge}))
    runtime, check = asyncio.run(_checked(settings, threshold))
    resolution, noise = check.resolution, check.noise
    say(f"on {runtime or 'an unknown runtime'}:")
    say(f"{resolution.distinct} of {resolution.prompts} prompts have a unique score")
    say(
        f"gaps of {noise.pairs} pairs differ by at most {noise.largest:.2g}, 95% of them by at "
        f"most {noise.p95:.2g}, between alone, together and from the cache"
    )
    say(
        f"{noise.flips} of {noise.pairs} pairs get another verdict at the threshold "
        f"{noise.threshold:.4f}"
    )
    if check.unfinished:
        say(f"{check.unfinished} pairs with an unfinished thought are left out")
    for warning in check.warnings:
        say(("warning:", "yellow"), f" {warning}")
    if check.warnings:
        raise typer.Exit(1)


async def _checked(
    settings: "Settings", threshold: float | None
) -> tuple[str | None, "JudgeCheck"]:
    """Loads the judge and checks it; returns its runtime, too."""
    from app.cli.progress import ConsoleObserver
    from app.cli.stopping import ending_at_ctrl_c
    from app.judges.checking import check_judge
    from app.observability.telemetry import Telemetry
    from app.wiring.scorers import open_scorer
    from app.wiring.startup import bundled_comparisons

    observer = ConsoleObserver()
    opening = open_scorer(settings, observer, telemetry=Telemetry.on_own_registry())
    with ending_at_ctrl_c():
        async with opening as scorer:
            observer.stage("Judging bundled pairs")
            check = await check_judge(scorer, bundled_comparisons(), threshold=threshold)
            return scorer.identity.runtime, check
