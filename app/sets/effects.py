"""The effects of a change of a calibration set on the criteria that are in use."""

from collections.abc import Iterable, Sequence

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
                more_labels=0 if row.feasible else await off_loop(after.more_examples, row),
            )
        )
    return tuple(effects)


async def rows_of(criteria: Iterable[Criterion], calibration: Calibration) -> tuple[Threshold, ...]:
    """Returns the row of each criterion with an alpha, in order of the criteria."""
    asked = {(one.guarantee, one.alpha, one.delta) for one in criteria if one.alpha is not None}
    # Each is its own turn in the threads, so that others get theirs in between.
    return tuple(
        [
            await off_loop(calibration.row, alpha, guarantee, delta)
            for guarantee, alpha, delta in sorted(asked, key=lambda one: (*one[:2], one[2] or 0.0))
        ]
    )


def refuse_infeasible(name: str, effects: Sequence[Effect]) -> None:
    """Raises BecomesInfeasibleError if a change ends all verdicts of a criterion."""
    lost = [
        f"{criterion_of(effect)}: {missing_labels(effect)}"
        for effect in effects
        if effect.becomes_infeasible
    ]
    if lost:
        raise BecomesInfeasibleError(
            f"calibration {name!r} would accept nothing under {'; '.join(lost)}. Label more first, "
            'use a new set, leave out "replace", or send "even_if_infeasible": true'
        )


def missing_labels(effect: Effect) -> str:
    """Says how many labels an infeasible criterion lacks."""
    if effect.after.labels_missing:
        return "it needs labels for the unlabeled pairs of the set"
    if effect.more_labels is None:
        return "more labels are not known to help; the judge may err too often where it is surest"
    return f"it needs at least {effect.more_labels} more labels"
