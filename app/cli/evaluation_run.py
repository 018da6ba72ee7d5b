"""Asks a judge about labelled pairs for `scope-judge evaluate`, with progress; can be resumed."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.markup import escape

from app.cli.console import ConsoleObserver, console, failure, progress_bar
from app.cli.stopping import ending_at_ctrl_c
from app.files.shapes import Shape
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


class EvaluationJob(NamedTuple):
    """The pairs to judge and the observations to make on each.

    Args:
        data: Benchmarks and files, as given on the command line.
        observations: Kinds of question that the methods need.
        limit: Largest number of pairs of each data set.
        seed: Seed of draws and samples.
        retry: Whether to ask again after a failure that normally repeats.
        shape: How the rows of files hold their pairs; None to recognise it.
    """

    data: Sequence[str]
    observations: "Sequence[Observation]"
    limit: int
    seed: int
    retry: bool
    shape: Shape | None = None


class JudgeChoice(NamedTuple):
    """The judge's settings and its prompt."""

    settings: Settings
    template: PromptTemplate


def choose_judge(judge: str | None) -> JudgeChoice:
    """The judge that --judge names; the user's own settings override those of a preset.

    Args:
        judge: Name of a preset, a model as in SCOPE_MODEL, or None for the settings' own.

    Raises:
        typer.Exit: A setting is wrong, there is no such judge, or nothing names a judge.
    """
    from app.evaluation.presets import PRESETS

    preset = PRESETS.get(judge or "")
    given: dict[str, Any] = {} if judge is None else {"model": preset.model if preset else judge}
    try:
        settings = read_settings(**given)
        if preset and "tensor_parallel" not in settings.model_fields_set:
            settings = read_settings(**given, tensor_parallel=preset.tensor_parallel)
    except ValueError as exc:
        raise failure(str(exc)) from None
    # The scripted engine has no model: whoever chooses it has chosen the judge.
    if judge is None and "model" not in settings.model_fields_set and settings.engine != "scripted":
        raise failure(
            f"no judge: give --judge with a model of the hub (OWNER/NAME), a folder, or one of "
            f"{', '.join(PRESETS)}, demo; or set SCOPE_MODEL"
        )
    known = preset or judge in (None, "demo") or "/" in judge or Path(judge).is_dir()
    if settings.engine == "vllm" and not known:
        raise failure(
            f"--judge {judge} is neither a folder, nor a model of the hub (OWNER/NAME), nor one of "
            f"{', '.join(PRESETS)}, demo"
        )
    own = {"prompt_file", "prefill"} & settings.model_fields_set
    if preset and not own:
        return JudgeChoice(settings, preset.template)
    return JudgeChoice(settings, load_template(settings.prompt_file, prefill=settings.prefill))


def judged_sources(job: EvaluationJob, choice: JudgeChoice, folder: Path) -> "dict[str, Source]":
    """Judges the pairs that lack answers in the folder's judgments.jsonl.

    Returns:
        Name of each data set -> its judged pairs.

    Raises:
        ScopeJudgeError: The data cannot be read, the folder has results of another run, or the
            judge fails.
        typer.Exit: The folder cannot be written, or two data sets have one name.
    """
    from app.evaluation.judgments.interview import missing_answers, relabelled
    from app.evaluation.judgments.log import JudgmentLog
    from app.evaluation.judgments.ownership import LOG_NAME, check_report, check_same_data
    from app.evaluation.measurement import Source

    benchmarks, datasets = _drawn(job, choice.template)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise failure(f"--out {folder}: {exc.strerror}") from None
    judge = judge_name(choice.settings)
    check_report(folder, judge, [dataset.name for dataset in datasets])
    with JudgmentLog(folder / LOG_NAME, judge=judge) as log:
        known = log.read()
        check_same_data(known.values(), benchmarks, folder)
        missing = missing_answers(datasets, job.observations, known, retry=job.retry)
        if any(one.pairs for one in missing):
            asyncio.run(_ask(choice, missing, known, log))
        log.append(relabelled(datasets, known))
        found = log.read()
    return {
        dataset.name: Source(
            # The file may have answers to other observations, from other runs.
            [found[dataset.name, pair.id].only(job.observations) for pair in dataset.pairs],
            benchmark.ties,
            benchmark.left_out,
        )
        for dataset, benchmark in zip(datasets, benchmarks, strict=True)
    }


def _drawn(job: EvaluationJob, template: PromptTemplate) -> "tuple[list[Benchmark], list[Dataset]]":
    from app.evaluation.benchmarks.catalogue import load_benchmark
    from app.evaluation.benchmarks.labelled_pairs import POOL, draw
    from app.evaluation.judgments.interview import Dataset
    from app.evaluation.judgments.questions import Questionnaire

    benchmarks: list[Benchmark] = []
    datasets: list[Dataset] = []
    for each in job.data:
        name, _, source = each.partition("=") if not Path(each).exists() else (each, "", "")
        benchmark = load_benchmark(name, source=source or None, shape=job.shape)
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
    choice: JudgeChoice,
    missing: "Sequence[MissingAnswers]",
    known: "Mapping[tuple[str, str], JudgedPair]",
    log: "JudgmentLog",
) -> None:
    from app.evaluation.judgments.interview import Interviewer

    async with AsyncExitStack() as stack:
        with ending_at_ctrl_c():
            observer = ConsoleObserver()
            stack.callback(observer.finish)
            opening = open_judge(choice.settings, choice.template, observer)
            started = await stack.enter_async_context(opening)
            observer.finish()
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
