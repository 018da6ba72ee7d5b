"""A run of `scope-judge evaluate`: asks a judge about labeled pairs, and writes the results."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.console import CommandError, say, stdout
from app.cli.progress import ConsoleObserver, progress_bar
from app.cli.running.rows import print_label_report
from app.cli.stopping import ending_at_ctrl_c, resumable
from app.files.reading import InputFormat
from app.files.replacing import replace_text
from app.judges.label_logits import LEAST_LABEL_MASS
from app.judges.prompts import PromptTemplate, load_template
from app.observability.telemetry import Telemetry
from app.settings import Settings, read_settings
from app.wiring.engines import judge_kind
from app.wiring.scorers import open_scorer

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair
    from app.evaluation.judgments.interview import MissingAnswers
    from app.evaluation.judgments.jsonl import JudgmentLog
    from app.evaluation.judgments.questions import Dataset
    from app.evaluation.judgments.record import JudgedPair, Observation
    from app.evaluation.measurement import JudgedDataset
    from app.evaluation.report.tables import Table
    from app.evaluation.results import DatasetResults, Results


# Tables of the report that are printed, too.
_SHOWN = ("quality", "risk")
_KEPT = "judgments are kept; rerun the command to resume"


def choose_judge(judge: str | None) -> Settings:
    """The settings with the judge of --judge or SCOPE_MODEL, which is not loaded yet."""
    given: dict[str, Any] = {} if judge is None else {"model": judge}
    settings = read_settings(**given)
    # The scripted engine has no model: whoever chooses it has chosen the judge.
    if judge is None and "model" not in settings.model_fields_set and settings.engine != "scripted":
        raise CommandError(
            "no judge: give --judge with a model of the hub (OWNER/NAME), a folder or demo; or set "
            "SCOPE_MODEL"
        )
    return settings


def judged_sources(
    data: Sequence[str],
    form: InputFormat,
    observations: "Sequence[Observation]",
    settings: Settings,
    folder: Path,
    *,
    limit: int,
    seed: int,
) -> "dict[str, JudgedDataset]":
    """Loads data sets, and judges the pairs that lack answers in the folder's judgments.jsonl.

    Returns:
        Name of each data set -> its judged pairs.
    """
    from app.evaluation.judgments.interview import missing_answers
    from app.evaluation.judgments.jsonl import LOG_NAME, JudgmentLog
    from app.evaluation.measurement import JudgedDataset

    is_chat = judge_kind(settings).startswith("chat model")
    template = load_template(settings.prompt_file, prefill=settings.prefill) if is_chat else None
    # A benchmark may have to be downloaded, so that wrong settings are reported first.
    benchmarks = _loaded(data, form)
    datasets = _drawn(benchmarks, observations, template, limit=limit, seed=seed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise CommandError(f"--out {folder}: {exc.strerror}") from None
    with JudgmentLog(folder / LOG_NAME, judge=settings.judge_name) as log, resumable(_KEPT):
        known = log.read()
        missing = missing_answers(datasets, observations, known)
        if any(one.pairs for one in missing):
            asyncio.run(_ask(settings, template, missing, known, log))
        answers = log.read()
    return {
        dataset.name: JudgedDataset(
            # The file may have answers to other observations, from other runs.
            pairs=[answers[dataset.name, pair.id].only(observations) for pair in dataset.pairs],
            ties=benchmark.ties,
            left_out=benchmark.left_out,
        )
        for dataset, benchmark in zip(datasets, benchmarks, strict=True)
    }


def _loaded(data: Sequence[str], form: InputFormat) -> "list[Benchmark]":
    """Loads data sets, and prints what became of the rows of files."""
    from app.evaluation.benchmarks.catalogue import load_benchmark

    benchmarks = []
    for entry in data:
        name, _, source = entry.partition("=") if not Path(entry).exists() else (entry, "", "")
        benchmark = load_benchmark(name, source=source or None, form=form)
        if benchmark.report is not None:
            print_label_report(benchmark.report)
        benchmarks.append(benchmark)
    return benchmarks


def _drawn(
    benchmarks: "Sequence[Benchmark]",
    observations: "Sequence[Observation]",
    template: PromptTemplate | None,
    *,
    limit: int,
    seed: int,
) -> "list[Dataset]":
    from app.evaluation.benchmarks.labeled_pairs import POOL, draw
    from app.evaluation.judgments.questions import Dataset, draw_personas

    datasets: list[Dataset] = []
    for benchmark in benchmarks:
        if benchmark.name in {other.name for other in datasets}:
            raise CommandError(
                f"two data sets are called {benchmark.name}: rename one of the files"
            )
        pairs, demonstrations = draw(
            benchmark,
            seed=seed,
            at_most=limit,
            demonstrations=POOL if "annotators" in observations else 0,
        )
        say(_summary(benchmark, pairs, len(demonstrations)))
        has_personas = "annotators" in observations
        datasets.append(
            Dataset(
                name=benchmark.name,
                pairs=pairs,
                template=template,
                personas=draw_personas(demonstrations, seed=seed) if has_personas else (),
                seed=seed,
            )
        )
    return datasets


def _summary(benchmark: "Benchmark", pairs: "Sequence[LabeledPair]", demonstrations: int) -> str:
    groups = len({pair.group for pair in pairs})
    parts = [
        f"{len(pairs)} of {len(benchmark.pairs)} pairs on {groups} questions",
        f"{demonstrations} more as demonstrations" if demonstrations else "",
        f"{benchmark.ties} ties left out" if benchmark.ties else "",
    ]
    parts += [f"{n} left out: {reason}" for reason, n in benchmark.left_out.items()]
    return f"{benchmark.name}: {'; '.join(filter(None, parts))}"


async def _ask(
    settings: Settings,
    template: PromptTemplate | None,
    missing: "Sequence[MissingAnswers]",
    known: "Mapping[tuple[str, str], JudgedPair]",
    log: "JudgmentLog",
) -> None:
    from app.evaluation.judgments.interview import ask, check_judge

    async with AsyncExitStack() as stack:
        with ending_at_ctrl_c():
            opening = open_scorer(
                settings,
                ConsoleObserver(),
                telemetry=Telemetry.on_own_registry(),
                template=template,
            )
            scorer = await stack.enter_async_context(opening)
        check_judge(scorer, known.values())
        with progress_bar() as progress:
            tasks = {
                (one.dataset.name, one.observation): progress.add_task(
                    f"{one.dataset.name}: {one.observation}",
                    total=len(one.dataset.pairs),
                    completed=len(one.dataset.pairs) - len(one.pairs),
                )
                for one in missing
            }
            await ask(
                scorer,
                missing,
                log,
                lambda one, n: progress.advance(tasks[one.dataset.name, one.observation], n),
            )


def write_results(results: "Results", folder: Path) -> None:
    """Writes results.json, report.md, tables/ and figures/ into a folder, and prints the tables."""
    from app.evaluation.report.figures import write_figures
    from app.evaluation.report.tables import tables_of
    from app.evaluation.results import to_json

    report, tables = folder / "report.md", tables_of(results)
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        replace_text(folder / "results.json", to_json(results))
        for table in tables:
            replace_text(folder / "tables" / f"{table.name}.csv", table.csv())
        write_figures(results.judge, results.datasets, folder / "figures")
        replace_text(report, _report(results, tables))
    except OSError as exc:
        raise CommandError(f"{exc.filename} cannot be written: {exc.strerror}") from None
    for dataset in results.datasets:
        _warn_of_low_label_mass(dataset)
    # The tables are the result, so they go to stdout.
    for table in tables:
        if table.name in _SHOWN:
            for line in [*table.markdown().splitlines(), ""]:
                stdout.print(line, soft_wrap=True)
    say(f"report: {report.resolve()}")


def _report(results: "Results", tables: "Sequence[Table]") -> str:
    from app.evaluation.paper import source
    from app.evaluation.report.tables import as_text

    design = results.design
    facts = [
        f"- Judge: {as_text(results.judge or 'not named in the judgments')}",
        *(f"- Data: {as_text(each.name)}, {each.n:,} labeled pairs" for each in results.datasets),
        f"- Splits: {design.splits:,}, {design.ablation_splits:,} for the ablations; seed "
        f"{design.seed}; delta of pac {design.delta:g}; scope-judge {results.version}",
        f"- Protocol and the numbers called paper: {source()}",
        "- Figures: `figures/`, numbered as the data above. Tables as CSV: `tables/`.",
    ]
    return "\n\n".join(["# Evaluation", "\n".join(facts), *(t.markdown() for t in tables)]) + "\n"


def _warn_of_low_label_mass(dataset: "DatasetResults") -> None:
    mass = dataset.label_mass
    if mass is not None and mass < LEAST_LABEL_MASS:
        say(
            ("warning:", "yellow"),
            f" {dataset.name}: the labels A and B together have a "
            f"probability of only {mass:.1e} (median) in this judge's answers, so its preferences "
            "are unreliable; try another SCOPE_PREFILL, prompt or model",
        )
