"""The report's table of what a pair costs by each method."""

from app.evaluation.costs import Costs
from app.evaluation.methods import METHODS, PairCost
from app.evaluation.report.table import (
    NONE,
    Cell,
    Heading,
    Line,
    Table,
    milliseconds,
    why_notes,
)
from app.evaluation.results import Results

_COLUMNS = (
    Heading("Prompts", "prompts that the judge read"),
    Heading("Tokens read", "tokens of these prompts, also those that the engine had in its cache"),
    Heading("Tokens written", "tokens of answers in words; label probabilities need none"),
    Heading("ms", "milliseconds, with many pairs at once"),
    Heading("ms over BPE's", "milliseconds divided by those of BPE"),
)
_NOTE = (
    "A rule costs what its signal costs. Prompts and tokens are exact. The milliseconds are those "
    "of one run, in which a later method may find prompts of an earlier one in the engine's cache. "
    "A method that reads one of two orders counts half of both."
)
_NOT_COUNTED = "the engine counts none"


def cost_table(results: Results, costs: Costs) -> Table | None:
    """A row for each method with the cost of a pair on each data set; None without costs."""
    datasets = [dataset.name for dataset in results.datasets if costs.get(dataset.name)]
    if not datasets:
        return None
    lines = tuple(
        Line(
            heading=Heading(METHODS[name].title),
            cells=tuple(
                cell
                for dataset in datasets
                for cell in _cells(costs[dataset].get(name), costs[dataset].get("bpe"))
            ),
        )
        for name in METHODS
        if any(name in costs[dataset] for dataset in datasets)
    )
    return Table(
        caption="Cost of a pair",
        corner="Method",
        spanning=tuple(Heading(dataset, spans=len(_COLUMNS)) for dataset in datasets),
        columns=_COLUMNS * len(datasets),
        bodies=(("", lines),),
        notes=(_NOTE, *why_notes(lines)),
    )


def _cells(cost: PairCost | None, bpe: PairCost | None) -> list[Cell]:
    if cost is None:
        return [Cell(NONE, why="not measured on this data set")] * len(_COLUMNS)
    ratio = Cell(NONE, why="BPE was not measured")
    if bpe is not None and bpe.seconds:
        ratio = Cell(f"{cost.seconds / bpe.seconds:.2f}")
    return [
        Cell(f"{cost.prompts:.3g}"),
        _tokens(cost.prompt_tokens, why=_NOT_COUNTED),
        _tokens(cost.written_tokens, why="nothing is written, or the engine counts none"),
        Cell(milliseconds(cost.seconds)),
        ratio,
    ]


def _tokens(number: float, *, why: str) -> Cell:
    return Cell(f"{number:,.0f}") if number else Cell(NONE, why=why)
