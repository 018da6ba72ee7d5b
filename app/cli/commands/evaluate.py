"""`scope-judge evaluate`: the paper's protocol on any judge and any labeled pairs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from app.cli.console import CommandError, console
from app.cli.running import options
from app.cli.running.rows import print_label_report
from app.core.comparison import STANDARD_DELTA

# The help of the command needs its options only, and most modules of app.evaluation need libraries
# of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.judgments.record import Observation
    from app.evaluation.methods import MethodName
    from app.settings import Settings

# The methods of the paper's main table; the other two need five answers for each pair.
_DEFAULT_METHODS = "predictive_probability,verbalized_confidence,swap_and_aggregate,bpe"
_ABLATION_SPLITS = 500


def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Benchmarks (mt-bench, reward-bench, chatbot-arena, judge-bench, pku-safe-rlhf, "
            "demo), NAME=FOLDER for a local copy, or labeled files."
        ),
    ] = None,
    judged: Annotated[
        Path | None,
        typer.Option("--from", help="Evaluate this judgments.jsonl; loads no judge."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="Model to judge with, like SCOPE_MODEL.  [default: SCOPE_MODEL]"),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas, or all (adds simulated_annotators and "
            f"self_consistency).  [default: {_DEFAULT_METHODS}, if the judge or file has them]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write. Judgments in it are reused.  [default: evaluation-JUDGE, or the "
            "folder of --from]"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=2, help="Pairs to draw per data set.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of draws, samples and splits.")] = 0,
    splits: Annotated[int, typer.Option(min=1, help="Random halves to average over.")] = 1000,
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            parser=options.share,
            help="Alpha in (0, 1); repeat for more.  [default: 0.05 to 0.25; with judge-bench or "
            "pku-safe-rlhf to 0.30]",
        ),
    ] = None,
    delta: options.DeltaOfPac = STANDARD_DELTA,
    columns: options.ColumnMap = None,
    encoding: options.Encoding = None,
) -> None:
    """Measure a judge on labeled pairs with the paper's protocol.

    Writes judgments.jsonl (raw answers), results.json, report.md, tables/ and figures/.
    """
    options.check_extra("evaluation")
    form = options.given_format(columns, encoding)
    if judged is not None and (data or judge):
        raise CommandError("--from needs no judge and no data: give --from, or data to judge")
    from app.cli.running.evaluation_run import choose_judge, judged_sources, write_results
    from app.evaluation.benchmarks.catalogue import benchmark_names, data_name
    from app.evaluation.judgments.jsonl import LOG_NAME, read_judgments
    from app.evaluation.measurement import measure, sources_of
    from app.evaluation.paper import alphas
    from app.evaluation.protocol import Design

    if judged is None and not data:
        known = ", ".join(benchmark_names())
        raise CommandError(f"no data: name a file of labeled pairs, or benchmarks among {known}")
    if judged is not None:
        asked = None if methods is None else _observations(_named(methods))
        own = judged.name == LOG_NAME
        folder = judged.parent if own else Path(f"evaluation-{data_name(judged)}")
        found = read_judgments([judged], form)
        print_label_report(found.report)
        if asked is not None:
            found = replace(found, pairs=tuple(pair.only(asked) for pair in found.pairs))
        name, sources = sources_of(found, judged, at_most=limit, seed=seed)
    else:
        settings = choose_judge(judge)
        name = settings.judge_name
        folder = Path(f"evaluation-{name.rpartition('/')[2]}")
        observations = _observations(_methods_of(settings, methods))
        sources = judged_sources(
            data or (), form, observations, settings, out or folder, limit=limit, seed=seed
        )
    design = Design(
        seed=seed,
        splits=splits,
        ablation_splits=min(splits, _ABLATION_SPLITS),
        alphas=tuple(sorted(set(alpha))) if alpha else alphas(sources),
        delta=delta,
    )
    with console.status("measuring") as status:
        results = measure(name, sources, design, on_progress=lambda text: status.update(Text(text)))
    write_results(results, out or folder)


def _named(methods: str) -> "list[MethodName]":
    """The methods that --methods names, in the paper's order."""
    from app.evaluation.methods import METHODS

    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise CommandError(
            f"--methods {', '.join(unknown)}: the methods are {', '.join(METHODS)}, or all"
        )
    return [name for name in METHODS if name in names]


def _methods_of(settings: "Settings", methods: str | None) -> "Sequence[MethodName]":
    """The methods to measure on a judge: those of --methods, or the default ones of its kind."""
    from app.evaluation.methods import METHODS_OF_KIND
    from app.wiring.engines import judge_kind

    kind = judge_kind(settings)
    possible = METHODS_OF_KIND[kind]
    if methods == "all":
        return possible
    if methods is None:
        return [name for name in possible if name in _DEFAULT_METHODS.split(",")]
    asked = _named(methods)
    others = [name for name in asked if name not in possible]
    if others:
        raise CommandError(
            f"--methods {', '.join(others)}: {settings.judge_name} is a {kind}, "
            f"which only knows --methods {','.join(possible)}"
        )
    return asked


def _observations(methods: "Sequence[MethodName]") -> "tuple[Observation, ...]":
    from app.evaluation.methods import METHODS

    return tuple(dict.fromkeys(need for name in methods for need in METHODS[name].needs))
