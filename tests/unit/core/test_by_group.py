"""Thresholds by group are those of separate sets; groups with few pairs have the set's."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import GUARANTEES, STANDARD_ALPHAS, Calibration, LabelledExample
from app.core.comparison import Criterion
from app.core.errors import LabelsMissingError
from app.core.group_rows import group_rows
from app.core.groups import ALL, FEWEST_OF_GROUP
from tests.labelled_examples import calibration_of, labelled_example

MARGINAL = Criterion(alpha=0.2, guarantee="marginal", delta=None, calibration="default")


def examples(
    rng: np.random.Generator, group: str | None, n: int, *, error: float, orders: int = 2
) -> dict[str, LabelledExample]:
    """n pairs of questions that have up to three pairs; the judge errs at random."""
    gaps = rng.normal(0.0, 2.0, n)
    wrong = rng.random(n) < error
    return {
        f"{group}{i:05d}": labelled_example(
            gap,
            gap if orders == 2 else None,
            0.9,
            "A" if (gap > 0) != is_wrong else "B",
            question=f"{i // 3:064x}",
            group=group,
        )
        for i, (gap, is_wrong) in enumerate(zip(gaps.tolist(), wrong.tolist(), strict=True))
    }


def both(seed: int, **fields: object) -> tuple[Calibration, Calibration]:
    """A set by group, and the same set without."""
    rng = np.random.default_rng(seed)
    made = {
        **examples(rng, None, 150, error=0.1),
        **examples(rng, "math", 200, error=0.3),
        **examples(rng, "code", FEWEST_OF_GROUP, error=0.02),
        **examples(rng, "art", FEWEST_OF_GROUP - 1, error=0.02),
    }
    return calibration_of(made, by_group=True, **fields), calibration_of(made, **fields)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["one", "adjusted", "ignore"]),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from([0.0, 0.95]),
)
def test_thresholds_by_group_are_those_of_separate_sets(
    seed: int, clusters: str, label_noise: float, min_label_mass: float
) -> None:
    options = {
        "clusters": clusters,
        "label_noise": label_noise,
        "min_label_mass": min_label_mass,
    }
    by_group, whole = both(seed, **options)
    assert list(by_group.own_calibrations) == ["code", "math"]
    assert whole.own_calibrations == {}
    for group in ("code", "math", "art", None):
        separate = whole
        if group in by_group.own_calibrations:
            own = {d: each for d, each in by_group.table.pairs() if each.group == group}
            separate = calibration_of(own, **options)
        judging = by_group.judging(group)
        assert judging.standard_rows == separate.standard_rows
        assert by_group.threshold_of(group) == (ALL if separate is whole else group)


def test_one_scale_of_a_judge_without_an_order_serves_all_groups() -> None:
    rng = np.random.default_rng(1)
    made = {
        **examples(rng, "math", 150, error=0.4, orders=1),
        **examples(rng, "code", 150, error=0.05, orders=1),
    }
    known = calibration_of(made, by_group=True)
    alone = calibration_of({d: each for d, each in made.items() if d.startswith("code")})
    part = known.judging("code")
    assert part.temperature == known.temperature != alone.temperature
    # Another scale of uncertainties accepts the same pairs.
    row, separate = part.row(0.2, "marginal", None), alone.row(0.2, "marginal", None)
    assert (row.coverage, row.empirical_risk) == (separate.coverage, separate.empirical_risk)


def test_the_number_of_pairs_alone_decides_who_has_thresholds() -> None:
    """A group in which nothing can be accepted abstains, and does not fall back to the set."""
    rng = np.random.default_rng(2)
    made = {
        **examples(rng, "good", 900, error=0.0),
        **examples(rng, "bad", FEWEST_OF_GROUP, error=0.9),
    }
    known = calibration_of(made, by_group=True)
    assert known.threshold(0.2, "marginal", None) == pytest.approx(math.log(2))
    assert known.judging("bad").threshold(0.2, "marginal", None) == -math.inf
    ties = {f"tie{i}": labelled_example(0.1, 0.1, 0.9, "tie", group="tied") for i in range(200)}
    assert known.judging("tied") is known
    assert calibration_of({**made, **ties}, by_group=True).threshold_of("tied") == ALL


def test_rows_of_groups_count_their_own_pairs() -> None:
    by_group, whole = both(3)
    for known in (by_group, whole):
        rows = {row.group: row for row in group_rows(known, [MARGINAL])}
        assert list(rows) == ["art", "code", "math"]
        for group, row in rows.items():
            threshold = known.judging(group).threshold(0.2, "marginal", None)
            own = (known.table.groups == known.table.group_names.index(group)) & (
                known.uncertainty <= threshold
            )
            assert (row.threshold, row.accepted) == (threshold, own.sum())
            assert row.errors == (own & known.error).sum()
            if row.error is not None and row.error_interval is not None:
                assert row.error_interval[0] <= row.error <= row.error_interval[1]


def test_declared_groups_without_pairs_and_pairs_without_labels_have_rows() -> None:
    rng = np.random.default_rng(4)
    made = examples(rng, "math", 60, error=0.1)
    waiting = {"w": labelled_example(0.5, 0.5, 0.9, None, group="code")}
    known = calibration_of({**made, **waiting}, groups=("art",))
    with pytest.raises(LabelsMissingError):
        known.threshold(0.2, "marginal", None)
    rows = {row.group: row for row in group_rows(known, [MARGINAL])}
    assert {group: (row.threshold, row.pairs, row.errors) for group, row in rows.items()} == {
        "art": (None, 0, 0),
        "code": (None, 0, None),
        "math": (None, 60, 0),
    }
    assert all(row.error_interval is None for row in rows.values())


def test_standard_rows_exist_for_every_own_group() -> None:
    by_group, _ = both(5)
    for part in by_group.own_calibrations.values():
        assert {(row.guarantee, row.alpha) for row in part.standard_rows} == {
            (guarantee, alpha) for guarantee in GUARANTEES for alpha in STANDARD_ALPHAS
        }
