"""Measures the cost of a pair by each method of the paper, for docs/measured/cost.md.

Usage: python -m docs.tools.make_method_costs                      writes the tables
       python -m docs.tools.make_method_costs JUDGE DATA PAIRS     measures a judge, too

JUDGE and DATA are as for `scope-judge evaluate`, whose cost.json has the same figures. Here vLLM's
cache is emptied before each kind of question, so that no method finds prompts of another one. The
kinds take turns, and each round begins with another one, so that a busy minute of the machine does
not hit one method alone.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from app.cli.progress import ConsoleObserver
from app.cli.running.evaluation_run import choose_judge
from app.engines.vllm_local import VllmEngine
from app.evaluation.benchmarks.catalogue import load_benchmark
from app.evaluation.benchmarks.labelled_pairs import POOL, draw
from app.evaluation.judgments.interview import Dataset, Interviewer, MissingAnswers
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.questions import Questionnaire
from app.evaluation.judgments.record import Cost, Observation
from app.evaluation.methods import METHODS, MethodName
from app.observability.telemetry import Telemetry
from app.service.scoring.label_logits import LabelLogitScorer
from app.wiring.scorers import open_scorer
from tests.drills.running import MEASURED
from tests.markdown import put_between_markers, table

NUMBERS, PAGE = MEASURED / "method-costs.json", MEASURED / "cost.md"
ROUNDS = 3
_KINDS: tuple[Observation, ...] = ("orders", "verbalized", "annotators", "samples")
# The second readings of two methods cost what the first ones do.
_METHODS: tuple[MethodName, ...] = (
    "bpe",
    "predictive_probability",
    "swap_and_aggregate",
    "verbalized_confidence",
    "simulated_annotators",
    "self_consistency",
)

# Method -> the fields of cost.json.
Round = Mapping[MethodName, Mapping[str, float]]


async def measure(judge: str, data: str, pairs: int) -> list[Round]:
    """The cost of a pair by each method, once a round."""
    choice = choose_judge(judge)
    drawn = draw(load_benchmark(data), seed=0, at_most=pairs, demonstrations=POOL)
    questionnaire = Questionnaire.of(choice.template, drawn.demonstrations, _KINDS, 0)
    dataset = Dataset(name="measured", pairs=drawn.pairs, questionnaire=questionnaire)
    observer = ConsoleObserver()
    opening = open_scorer(
        choice.settings,
        observer,
        telemetry=Telemetry.on_own_registry(),
        template=choice.template,
    )
    async with opening as scorer:
        observer.finish()
        assert isinstance(scorer, LabelLogitScorer)
        assert isinstance(scorer.engine, VllmEngine)
        # Texts are not asked for before the first one is timed.
        await _cost(scorer, scorer.engine, "samples", dataset)
        rounds: list[Round] = []
        for i in range(ROUNDS):
            costs = {
                kind: await _cost(scorer, scorer.engine, kind, dataset)
                for kind in (*_KINDS[i:], *_KINDS[:i])
            }
            of_methods = {name: METHODS[name].cost(costs) for name in _METHODS}
            rounds.append({name: asdict(cost) for name, cost in of_methods.items() if cost})
            print(f"round {i + 1} of {ROUNDS}", flush=True)
        return rounds


async def _cost(
    scorer: LabelLogitScorer, engine: VllmEngine, kind: Observation, dataset: Dataset
) -> Cost:
    """The cost of one kind of question, from an empty cache."""
    await engine._process.running().reset_prefix_cache()
    missing = MissingAnswers(dataset=dataset, observation=kind, pairs=dataset.pairs)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "judgments.jsonl"
        with JudgmentLog(file, judge=scorer.identity.name) as log:
            costs = await Interviewer(scorer=scorer).ask([missing], log, lambda *_: None)
    return costs[dataset.name, kind]


def rows(rounds: Sequence[Round]) -> Iterator[list[str]]:
    """A row for each method: prompts, tokens, and the median ratio of the times."""
    for name in _METHODS:
        costs = [of_methods[name] for of_methods in rounds]
        ratios = sorted(one[name]["seconds"] / one["bpe"]["seconds"] for one in rounds)
        yield [
            METHODS[name].title,
            f"{costs[0]['prompts']:.3g}",
            *(
                f"{median(cost[field] for cost in costs):,.0f}"
                for field in ("prompt_tokens", "written_tokens")
            ),
            f"{median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
        ]


def tables(judges: Mapping[str, Any]) -> str:
    """The tables of all judges in Markdown."""
    columns = ("method", "prompts", "tokens read", "tokens written", "time over BPE's")
    return "\n\n".join(
        f"`{name}`, {one['pairs']} pairs of `{one['data']}`:\n\n"
        + table(columns, [*rows(one["rounds"])])
        for name, one in judges.items()
    )


def main() -> None:
    """Measures the judge that the command line names, if any, and writes the page."""
    judges = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {}
    if sys.argv[1:]:
        judge, data, pairs = sys.argv[1:]
        rounds = asyncio.run(measure(judge, data, int(pairs)))
        name = Path(data).name
        judges[Path(judge).name] = {"data": name, "pairs": int(pairs), "rounds": rounds}
        NUMBERS.write_text(json.dumps(judges, indent=1) + "\n", encoding="utf-8")
    put_between_markers("methods", tables(judges), PAGE)


if __name__ == "__main__":
    main()
