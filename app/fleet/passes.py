"""Repeats the parts of a bulk run until all are done or a pass finishes none."""

from collections.abc import Callable, Iterator, Mapping

from app.core.errors import StartupError
from app.fleet.parts import Part
from app.fleet.worker import PartOutcome

# Judges each part once and yields outcomes in any order; outcomes of lost machines are missing.
Pass = Callable[[Mapping[int, Part]], Iterator[PartOutcome]]


def judged_parts(undone: Mapping[int, Part], judge: Pass) -> Iterator[PartOutcome]:
    """Yields the final outcome of each part.

    A part that failed, or whose machine was lost, is judged again in the next pass, as long as
    every pass finishes at least one part.

    Raises:
        StartupError: The input or the judge is not the one with which the run began.
    """
    undone = dict(undone)
    failed: dict[int, PartOutcome] = {}
    helped = True
    while undone and helped:
        helped = False
        for outcome in judge(dict(undone)):
            if outcome.kind == "refused":
                raise StartupError(outcome.detail)
            if outcome.kind == "failed":
                failed[outcome.part] = outcome
            elif undone.pop(outcome.part, None) is not None:
                helped = True
                yield outcome
    for number in undone:
        yield failed.get(
            number, PartOutcome(part=number, kind="failed", detail="its machine was lost")
        )
