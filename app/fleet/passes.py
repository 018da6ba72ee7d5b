"""A bulk run goes over its parts until all are done, or until going over them does not help."""

from collections.abc import Callable, Iterator, Mapping

from app.core.errors import StartupError
from app.fleet.parts import Part
from app.fleet.worker import Outcome

# Judges parts once; it may leave out some, and in any order.
Pass = Callable[[Mapping[int, Part]], Iterator[Outcome]]


def judged_parts(undone: Mapping[int, Part], judge: Pass) -> Iterator[Outcome]:
    """Tells each part's outcome when it is known for good.

    A part that failed, or that a machine took with it, is judged again after the others, as long
    as every pass finishes some.

    Raises:
        StartupError: The input or the judge is not what the run was begun with.
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
