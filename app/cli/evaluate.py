"""`scope-judge evaluate`: the paper's protocol on any judge and any labelled pairs."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.console import ConsoleObserver, console, failure, progress_bar
from app.core.calibration import STANDARD_ALPHAS, STANDARD_DELTA
from app.core.errors import ScopeJudgeError, UnavailableError
from app.service.judging.prompts import PromptTemplate, load_template
from app.settings import Settings, read_settings
from app.wiring.engines import judge_name
from app.wiring.services import open_judge

# Most modules of app.evaluation need libraries of the extra "evaluation": functions import them.
if TYPE_CHECKING:
    from app.evaluation.benchmarks.labelled_pairs import Benchmark, Drawn
    from app.evaluation.judgments.interview import Dataset, MissingAnswers
    from app.evaluation.judgments.log import JudgmentLog
    from app.evaluation.judgments.record import JudgedPair, Observation
    from app.evaluation.measurement import Source
    from app.evaluation.methods import MethodName
    from app.evaluation.protocol import Design
    from app.evaluation.results import DatasetResults, Results

_EXTRA = ("sklearn", "matplotlib", "jinja2")
# The methods of the paper's main table; the other two need five answers for each pair.
_DEFAULT_METHODS = "predictive_probability,verbalized_confidence,swap_and_aggregate,bpe"
_LOG_NAME = "judgments.jsonl"
_LEAST_WIDTH = 90
_ABLATION_SPLITS = 500


class _Job(NamedTuple):
    """The pairs to judge, and the questions about them.

    Args:
        data: Benchmarks and files, as given on the command line.
        observations: Observations that the methods need.
        limit: Largest number of pairs of each data set.
        seed: Seed of draws and samples.
        retry: Whether to ask again after a failure that normally repeats.
    """

    data: Sequence[str]
    observations: "Sequence[Observation]"
    limit: int
    seed: int
    retry: bool


class _JudgeChoice(NamedTuple):
    """The judge's settings and its prompt."""

    settings: Settings
    template: PromptTemplate


def evaluate(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Benchmarks (mt-bench, reward-bench, chatbot-arena, judge-bench, pku-safe-rlhf, "
            "demo), NAME=FOLDER for a local copy of one, or JSONL with question, response_a, "
            "response_b, label.  [default: demo]"
        ),
    ] = None,
    judged: Annotated[
        Path | None,
        typer.Option("--from", help="Only evaluate this judgments.jsonl; no judge is needed."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="One of the paper's judges (see docs/measured/reproduce.md), or a model as in "
            "SCOPE_MODEL."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, or all, which adds simulated_annotators and self_consistency.  "
            f"[default: {_DEFAULT_METHODS}; with --from, those with answers in the file]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write; pairs that it already has judgments of are not judged again.  "
            "[default: evaluation-JUDGE; with --from, the folder of judgments.jsonl]"
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Also judge pairs again that were too long before.")
    ] = False,
    limit: Annotated[int, typer.Option(min=2, help="Pairs to draw from each data set.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of draws, samples and splits.")] = 0,
    splits: Annotated[int, typer.Option(min=1, help="Random halves to average over.")] = 1000,
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="In (0, 1); may be given several times.  [default: 0.05 to 0.25]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of pac, in (0, 1).")] = STANDARD_DELTA,
) -> None:
    """Measure a judge on labelled pairs as in the paper: tables, figures, one report.

    Writes judgments.jsonl (every raw answer), results.json and report.html. If it is stopped, run
    the same command again: it continues where it stopped.
    """
    _check_extra()
    design = _design(alpha, delta, seed=seed, splits=splits)
    if judged is not None and (data or judge):
        raise failure("--from needs no judge and no data: give either it, or what to judge")
    from app.evaluation.benchmarks.catalogue import data_name

    observations = None if judged and not methods else _observations(methods or _DEFAULT_METHODS)
    try:
        if judged is not None:
            own = judged.name == _LOG_NAME
            folder = judged.parent if own else Path(f"evaluation-{data_name(judged)}")
            found = _read(judged, observations, limit, seed)
        else:
            choice = _chosen(judge)
            name = judge_name(choice.settings)
            folder = Path(f"evaluation-{name.rpartition('/')[2]}")
            job = _Job(data or ["demo"], observations or (), limit, seed, retry)
            found = name, _judged(job, choice, out or folder)
        _write(_measured(*found, design), out or folder)
    except UnavailableError as exc:
        raise failure(f"{exc.detail}; what is judged is kept: run the same command again") from None
    except ScopeJudgeError as exc:
        raise failure(exc.detail) from None
    except KeyboardInterrupt:
        console.print("stopped; what is judged is kept: run the same command again")
        raise typer.Exit(130) from None


def _check_extra() -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise failure(f"{', '.join(missing)} missing: pip install scope-judge[evaluation]")


def _design(alpha: list[float] | None, delta: float, *, seed: int, splits: int) -> "Design":
    from app.evaluation.protocol import Design

    alphas = tuple(sorted(set(alpha or STANDARD_ALPHAS)))
    for name, value in (*(("alpha", each) for each in alphas), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise failure(f"--{name} must be between 0 and 1, both excluded, got {value}")
    return Design(seed, splits, min(splits, _ABLATION_SPLITS), alphas, delta)


def _read(
    file: Path, observations: "Sequence[Observation] | None", limit: int, seed: int
) -> "tuple[str | None, dict[str, Source]]":
    from app.evaluation.judgments.jsonl import read_judgments
    from app.evaluation.measurement import sources_of

    found = read_judgments(file)
    for skipped in found.skipped[:3]:
        console.print(f"[yellow]left out:[/] line {skipped.line} has no {skipped.reason}")
    if len(found.skipped) > 3:
        console.print(f"[yellow]left out:[/] {len(found.skipped)} lines in all")
    if observations is not None:
        found = found._replace(pairs=tuple(pair.only(observations) for pair in found.pairs))
    return sources_of(found, file, at_most=limit, seed=seed)


def _chosen(judge: str | None) -> _JudgeChoice:
    """The judge of an argument; the user's own settings override those of a preset."""
    from app.evaluation.presets import PRESETS

    preset = PRESETS.get(judge or "")
    given: dict[str, Any] = {} if judge is None else {"model": preset.model if preset else judge}
    try:
        settings = read_settings(**given)
        if preset and "tensor_parallel" not in settings.model_fields_set:
            settings = read_settings(**given, tensor_parallel=preset.tensor_parallel)
    except ValueError as exc:
        raise failure(str(exc)) from None
    known = preset or judge in (None, "demo") or "/" in judge or Path(judge).is_dir()
    if settings.engine == "vllm" and not known:
        raise failure(
            f"--judge {judge} is neither a folder, nor a model of the hub (OWNER/NAME), nor one of "
            f"{', '.join(PRESETS)}, demo"
        )
    own = {"prompt_file", "prefill"} & settings.model_fields_set
    if preset and not own:
        return _JudgeChoice(settings, preset.template)
    return _JudgeChoice(settings, load_template(settings.prompt_file, prefill=settings.prefill))


def _observations(methods: str) -> "tuple[Observation, ...]":
    from app.evaluation.methods import METHODS

    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise failure(
            f"--methods {', '.join(unknown)}: the methods are {', '.join(METHODS)}, or all"
        )
    known: Sequence[MethodName] = [name for name in METHODS if name in names]
    return tuple(dict.fromkeys(need for name in known for need in METHODS[name].needs))


def _judged(job: _Job, choice: _JudgeChoice, folder: Path) -> "dict[str, Source]":
    """Judges the pairs that lack answers in the folder's judgments.jsonl."""
    from app.evaluation.judgments.interview import missing_answers, relabelled
    from app.evaluation.judgments.log import JudgmentLog
    from app.evaluation.measurement import Source

    benchmarks, datasets = _drawn(job, choice.template)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise failure(f"--out {folder}: {exc.strerror}") from None
    with JudgmentLog(folder / _LOG_NAME, judge=judge_name(choice.settings)) as log:
        known = log.read()
        missing = missing_answers(datasets, job.observations, known, retry=job.retry)
        if any(one.pairs for one in missing):
            asyncio.run(_ask(choice, missing, known, log))
        log.append(relabelled(datasets, known))
        found = log.read()
    return {
        dataset.name: Source(
            # Answers of other runs to other observations are not part of these results.
            [found[dataset.name, pair.id].only(job.observations) for pair in dataset.pairs],
            benchmark.ties,
            benchmark.left_out,
        )
        for dataset, benchmark in zip(datasets, benchmarks, strict=True)
    }


def _drawn(job: _Job, template: PromptTemplate) -> "tuple[list[Benchmark], list[Dataset]]":
    from app.evaluation.benchmarks.catalogue import load_benchmark
    from app.evaluation.benchmarks.labelled_pairs import POOL, draw
    from app.evaluation.judgments.interview import Dataset
    from app.evaluation.judgments.questions import Questionnaire

    benchmarks: list[Benchmark] = []
    datasets: list[Dataset] = []
    for each in job.data:
        name, _, source = each.partition("=") if not Path(each).exists() else (each, "", "")
        benchmark = load_benchmark(name, source=source or None)
        if benchmark.name in {other.name for other in benchmarks}:
            raise failure(f"two data sets are called {benchmark.name}: rename one of the files")
        drawn = draw(
            benchmark,
            seed=job.seed,
            at_most=job.limit,
            demonstrations=POOL if "annotators" in job.observations else 0,
        )
        console.print(_summary(benchmark, drawn), highlight=False, soft_wrap=True)
        questionnaire = Questionnaire.of(template, drawn.demonstrations, job.observations, job.seed)
        benchmarks.append(benchmark)
        datasets.append(Dataset(benchmark.name, drawn.pairs, questionnaire))
    return benchmarks, datasets


def _summary(benchmark: "Benchmark", drawn: "Drawn") -> str:
    groups = len({pair.group for pair in drawn.pairs})
    parts = [
        f"{len(drawn.pairs)} of {len(benchmark.pairs)} pairs on {groups} questions",
        f"{len(drawn.demonstrations)} more as demonstrations" if drawn.demonstrations else "",
        f"{benchmark.ties} ties left out" if benchmark.ties else "",
        *(f"{n} left out: {reason}" for reason, n in benchmark.left_out.items()),
    ]
    return escape(f"{benchmark.name}: {'; '.join(filter(None, parts))}")


async def _ask(
    choice: _JudgeChoice,
    missing: "Sequence[MissingAnswers]",
    known: "Mapping[tuple[str, str], JudgedPair]",
    log: "JudgmentLog",
) -> None:
    from app.evaluation.judgments.interview import Interviewer

    async with open_judge(choice.settings, choice.template, ConsoleObserver()) as started:
        interviewer = Interviewer(started.engine, started.name, started.identity.fingerprint)
        interviewer.check(known.values(), [one.observation for one in missing if one.pairs])
        with progress_bar() as progress:
            tasks = {
                (one.dataset.name, one.observation): progress.add_task(
                    f"{escape(one.dataset.name)}: {one.observation}",
                    total=len(one.dataset.pairs),
                    completed=len(one.dataset.pairs) - len(one.pairs),
                )
                for one in missing
            }
            await interviewer.ask(
                missing,
                log,
                lambda one, n: progress.advance(tasks[one.dataset.name, one.observation], n),
            )


def _measured(name: "str | None", sources: "dict[str, Source]", design: "Design") -> "Results":
    from app.evaluation.measurement import measure

    with console.status("measuring") as status:
        return measure(name, sources, design, on_progress=lambda text: status.update(escape(text)))


def _write(results: "Results", folder: Path) -> None:
    from app.evaluation.report.page import write_report
    from app.evaluation.results import to_json

    report = folder / "report.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(to_json(results), encoding="utf-8")
        write_report(results, report)
    except OSError as exc:
        raise failure(f"{exc.filename} cannot be written: {exc.strerror}") from None
    # The tables are the result, so they go to stdout.
    printed = Console(highlight=False)
    printed.width = max(printed.width, _LEAST_WIDTH)
    for dataset in results.datasets:
        printed.print(_quality_table(dataset))
        risk = _risk_table(dataset)
        printed.print(risk if risk.rows else "too few pairs to calibrate on one half\n")
    console.print(f"report: {report.resolve()}", highlight=False, soft_wrap=True)


def _quality_table(dataset: "DatasetResults") -> Table:
    from app.evaluation.methods import METHODS

    title = f"{escape(dataset.name)}: {dataset.n} pairs"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("signal")
    for heading in ("n", "missing", "accuracy", "ECE", "AUROC", "AUPRC"):
        table.add_column(heading, justify="right")
    for found in dataset.methods:
        table.add_row(
            METHODS[found.method].title,
            str(found.n),
            str(found.unparsed + found.failed),
            *("-" if value is None else f"{value:.3f}" for value in found.quality),
        )
    return table


def _risk_table(dataset: "DatasetResults") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rule on BPE")
    for heading in ("alpha", "coverage", "risk", "errors / accepted", "splits above alpha"):
        table.add_column(heading, justify="right")
    rows = [row for found in dataset.methods if found.method == "bpe" for row in found.rows]
    for row in rows:
        if row.selector in ("scope", "pac"):
            outcome = row.outcome
            ratio = outcome.ratio_of_sums
            table.add_row(
                row.selector,
                f"{row.alpha:g}",
                f"{outcome.coverage:.3f}",
                f"{outcome.risk:.3f}",
                "-" if ratio is None else f"{ratio:.3f}",
                f"{outcome.share_above_alpha:.1%}",
            )
    return table
