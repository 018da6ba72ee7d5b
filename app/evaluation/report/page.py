"""The evaluation report as one HTML page without scripts and without external resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.core.printable import printable_value
from app.evaluation import paper
from app.evaluation.costs import Costs
from app.evaluation.methods import METHODS
from app.evaluation.metrics import RiskCoverage
from app.evaluation.protocol import RuleOutcome
from app.evaluation.report import figures
from app.evaluation.report.ablation_tables import (
    noise_table,
    size_table,
    transfer_table,
    world_table,
)
from app.evaluation.report.cost_table import cost_table
from app.evaluation.report.main_tables import (
    SIGNALS,
    all_labels_table,
    alphas_table,
    compared_table,
    counts_table,
    method_of,
    nearest_alpha,
    outcome_of,
    quality_table,
    risk_table,
    rules_table,
)
from app.evaluation.report.table import Table, level, share
from app.evaluation.results import DatasetResults, Results
from app.files.replacing import replace_text

# The rules that the figures compare.
_DRAWN = ("scope", "pac", "naive")
_NO_BPE = "The judge was not measured in both orders here, so SCOPE and pac cannot be evaluated."
_TOO_FEW = "There are fewer than 4 pairs: too few to calibrate on one half and test on the other."


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The summary of a data set.

    Args:
        dataset: Name of the data set.
        measured: Numbers of pairs and left-out rows, and the error rate without abstaining.
        sentences: One sentence for each guarantee.
    """

    dataset: str
    measured: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """An `<svg>` element without text from users, and its description for screen readers."""

    svg: str
    shows: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plots:
    """The figures of one data set."""

    dataset: str
    curves: tuple[Plot, ...]
    panels: tuple[Plot, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The values that the template shows."""

    facts: tuple[tuple[str, str], ...]
    alpha: str
    delta: str
    is_papers: bool
    source: str
    answers: tuple[Answer, ...]
    quality: Table
    compared: Table
    counts: Table | None
    costs: Table | None
    risk: Table
    alphas: Table | None
    all_labels: Table | None
    plots: tuple[Plots, ...]
    ablations: tuple[Table, ...]
    rules: tuple[Table, ...]
    world: Table | None
    clusters: tuple[str, ...]


def write_report(results: Results, costs: Costs, file: Path) -> None:
    """Writes the page; equal results and costs write equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    replace_text(file, render_report(results, costs))


def render_report(results: Results, costs: Costs) -> str:
    """The page as HTML; names from users are escaped."""
    return rendered("page.html.j2", _page(results, costs))


def rendered(template: str, page: object) -> str:
    """A page of this folder's templates as HTML; its texts are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(page=page)


def _page(results: Results, costs: Costs) -> Page:
    alpha = nearest_alpha(results.design.alphas)
    ablations = (noise_table(results), size_table(results), transfer_table(results))
    rules = (rules_table(dataset) for dataset in results.datasets)
    is_papers = paper.paper_judge(results.judge) is not None and any(
        paper.paper_dataset(dataset.name) for dataset in results.datasets
    )
    return Page(
        facts=_facts(results),
        alpha=level(alpha),
        delta=level(results.design.delta),
        is_papers=is_papers,
        source=paper.source(),
        answers=tuple(_answer(dataset, results, alpha) for dataset in results.datasets),
        quality=quality_table(results),
        compared=compared_table(results),
        counts=counts_table(results),
        costs=cost_table(results, costs),
        risk=risk_table(results, alpha),
        alphas=alphas_table(results),
        all_labels=all_labels_table(results),
        plots=tuple(
            _plots(results.judge, dataset, f"{place}")
            for place, dataset in enumerate(results.datasets)
        ),
        ablations=tuple(table for table in ablations if table),
        rules=tuple(table for table in rules if table),
        world=world_table(results),
        clusters=tuple(_cluster(d) for d in results.datasets if d.groups and d.groups < d.n),
    )


def _facts(results: Results) -> tuple[tuple[str, str], ...]:
    design = results.design
    return (
        ("Judge", results.judge or "not named in the judgments"),
        ("Data sets", ", ".join(dataset.name for dataset in results.datasets)),
        ("Labelled pairs", ", ".join(f"{dataset.n:,}" for dataset in results.datasets)),
        ("Splits", f"{design.splits:,} ({design.ablation_splits:,} for the ablations)"),
        ("Seed", str(design.seed)),
        ("Delta of pac", level(design.delta)),
        ("Version", f"scope-judge {results.version}"),
    )


def _answer(dataset: DatasetResults, results: Results, alpha: float) -> Answer:
    method = method_of(dataset, "bpe")
    if method is None:
        return Answer(dataset=dataset.name, measured=_measured(dataset), sentences=(_NO_BPE,))
    pac = f"pac (delta {level(results.design.delta)})"
    rules = (("SCOPE", "scope"), (pac, "pac"))
    outcomes = [(name, outcome_of(method.rows, rule, alpha)) for name, rule in rules]
    sentences = tuple(_sentence(name, outcome) for name, outcome in outcomes if outcome)
    return Answer(
        dataset=dataset.name, measured=_measured(dataset), sentences=sentences or (_TOO_FEW,)
    )


def _sentence(name: str, outcome: RiskCoverage) -> str:
    if outcome.ratio_of_sums is None:
        return f"{name} accepts nothing in any of the {outcome.splits:,} splits."
    return (
        f"{name} accepts {share(outcome.coverage)} of the pairs at a risk of "
        f"{share(outcome.risk)} (all errors by all accepted: {share(outcome.ratio_of_sums)}), "
        f"and {share(outcome.share_above_alpha)} of the {outcome.splits:,} splits exceed alpha."
    )


def _measured(dataset: DatasetResults) -> str:
    parts = [f"{dataset.n:,} pairs"]
    if dataset.groups:
        parts[0] += f" of {dataset.groups:,} groups"
    if dataset.ties:
        parts.append(f"{dataset.ties:,} ties left out")
    parts += [f"{count:,} left out: {reason}" for reason, count in dataset.left_out.items()]
    method = method_of(dataset, "bpe")
    if method and method.quality.accuracy is not None:
        wrong = share(1.0 - method.quality.accuracy)
        parts.append(f"accepting every verdict would be wrong on {wrong}")
    if dataset.label_mass is not None:
        parts.append(
            f"A and B have {share(dataset.label_mass)} of the judge's probability (median)"
        )
    return "; ".join(parts)


def _cluster(dataset: DatasetResults) -> str:
    each = dataset.n / dataset.groups if dataset.groups else 1.0
    return f"{dataset.name}: {dataset.n:,} pairs of {dataset.groups:,} groups, {each:.1f} in each"


def _plots(judge: str | None, dataset: DatasetResults, key: str) -> Plots:
    curves = {rule: _curve(dataset, rule) for rule in _DRAWN}
    marks = {
        rule: {
            row.alpha: outcome
            for row in rows
            if (
                outcome := paper.outcome(
                    judge, dataset.name, rule, signal=SIGNALS[rule], alpha=row.alpha
                )
            )
        }
        for rule, rows in curves.items()
    }
    risk = figures.risk_figure(curves, marks, key=f"{key} risk")
    coverage = figures.coverage_figure(curves, marks, key=f"{key} coverage")
    drawn = [(risk, "Risk by alpha"), (coverage, "Coverage by alpha")]
    start = figures.lowest_confidence(dataset.methods)
    panels = []
    for method in dataset.methods:
        title = METHODS[method.method].title
        panel = figures.reliability_figure(method, title, start=start, key=f"{key} {title}")
        panels.append((panel, f"{title}: accuracy by confidence"))
    return Plots(dataset=dataset.name, curves=_shown(drawn), panels=_shown(panels))


def _curve(dataset: DatasetResults, rule: str) -> list[RuleOutcome]:
    method = method_of(dataset, SIGNALS[rule])
    rows = [row for row in method.rows if row.selector == rule] if method else []
    return sorted(rows, key=lambda row: row.alpha)


def _shown(drawn: Sequence[tuple[str | None, str]]) -> tuple[Plot, ...]:
    return tuple(Plot(svg=svg, shows=shows) for svg, shows in drawn if svg)
