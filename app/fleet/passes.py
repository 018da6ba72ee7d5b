"""Repeats the parts of a bulk run until all are done or a pass finishes none."""

from collections.abc import Callable, Iterator, Mapping

from app.core.errors import StartupError
from app.fleet.parts import Part
from app.fleet.worker import Outcome

# Judges each part once and yields outcomes in any order; outcomes of lost machines are missing.
Pass = Callable[[Mapping[int, Part]], Iterator[Outcome]]


def judged_parts(undone: Mapping[int, Part], judge: Pass) -> Iterator[Outcome]:
    """Yields the final outcome of each part.

    A part that failed, or whose machine was lost, is judged again in the next pass, as long as
    every pass finishes at least one part.

    Args:
        undone: Number -> part.
        judge: One pass.

    Raises:
        StartupError: The input or the judge is not the one with which the run began.
    """
    undone = dict(undone)
    failed: dict[int, Outcome] = {}
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
        yield failed.get(number, Outcome(number, "failed", detail="its machine was lost"))
