"""The effects of a change of a calibration set on the criteria that are in use."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.core.calibration import Calibration
from app.core.comparison import Criterion
from app.core.errors import BecomesInfeasibleError
from app.flow import off_loop
from scope_judge.records import Effect, Threshold


def criterion_of(row: Threshold | Effect) -> str:
    """Names the criterion in words."""
    alpha, guarantee, delta = row.alpha, row.guarantee, row.delta
    return Criterion(alpha=alpha, guarantee=guarantee, delta=delta, calibration="").words


async def effects_of(
    criteria: Iterable[Criterion], *, before: Calibration, after: Calibration
) -> tuple[Effect, ...]:
    """Returns the effect on each criterion with an alpha, in order of the criteria."""
    old, new = [await rows_of(criteria, version) for version in (before, after)]
    effects = list[Effect]()
    for was, row in zip(old, new, strict=True):
        effects.append(
            Effect(
                alpha=row.alpha,
                guarantee=row.guarantee,
                delta=row.delta,
                before=was,
                after=row,
                becomes_infeasible=was.feasible and not row.feasible,
                more_labels=await off_loop(_more_labels, after, row),
            )
        )
    return tuple(effects)


async def rows_of(criteria: Iterable[Criterion], calibration: Calibration) -> tuple[Threshold, ...]:
    """Returns the row of each criterion with an alpha, in order of the criteria."""
    name = calibration.name
    asked = {replace(one, calibration=name) for one in criteria if one.alpha is not None}
    # Each is its own turn in the threads, so that others get theirs in between.
    return tuple(
        [
            await off_loop(_row, calibration, criterion)
            for criterion in sorted(
                asked, key=lambda one: (one.guarantee, one.alpha or 0.0, one.delta or 0.0)
            )
        ]
    )


def _row(calibration: Calibration, criterion: Criterion) -> Threshold:
    alpha = criterion.alpha
    assert alpha is not None, "without an alpha there is no threshold"
    return calibration.row(alpha, criterion.guarantee, criterion.delta)


def _more_labels(calibration: Calibration, row: Threshold) -> int | None:
    return 0 if row.feasible else calibration.more_examples(row)


def refuse_infeasible(name: str, effects: Sequence[Effect]) -> None:
    """Raises BecomesInfeasibleError if a change ends all verdicts of a criterion."""
    lost = [_lost(effect) for effect in effects if effect.becomes_infeasible]
    if lost:
        raise BecomesInfeasibleError(
            f"calibration {name!r} would accept nothing under {'; '.join(lost)}. Label "
            'more first, keep the other examples ("replace": false), or send '
            '"even_if_infeasible": true'
        )


def refuse_pool(name: str, effects: Sequence[Effect]) -> None:
    """Raises BecomesInfeasibleError if pairs without labels end all verdicts of a criterion."""
    ended = next((effect for effect in effects if effect.becomes_infeasible), None)
    if ended is not None:
        raise BecomesInfeasibleError(
            f"calibration {name!r} gives verdicts under {criterion_of(ended)}, and pairs without "
            'labels would end them: use a new set, or send "even_if_infeasible": true'
        )


def _lost(effect: Effect) -> str:
    return f"{criterion_of(effect)}: {missing_labels(effect)}"


def missing_labels(effect: Effect) -> str:
    """Says how many labels an infeasible criterion lacks."""
    if effect.after.labels_missing:
        return "it needs labels for the unlabeled pairs of the set"
    if effect.more_labels is None:
        return "more labels are not known to help; the judge may err too often where it is surest"
    return f"it needs at least {effect.more_labels} more labels"
