"""Planned looks: a threshold is taken at a look only, with the look's share of delta."""

import math
from dataclasses import replace

import numpy as np
import pytest

from app.core.calibration import Calibration, LabelledExample
from app.core.errors import LabelsMissingError
from app.core.looks import MOST_LOOKS, Looks, TakenLook
from tests.labelled_examples import calibration_of, labelled_example

ALPHA, DELTA = 0.15, 0.3
PLAN = Looks(sizes=(100, 200, 300), until_coverage=0.95, alpha=ALPHA, delta=DELTA)


def drawn(n: int = 320, *, size: int = 1, seed: int = 1) -> dict[str, LabelledExample]:
    """Labelled pairs of questions with so many pairs; the judge errs where it is unsure."""
    rng = np.random.default_rng(seed)
    gaps = rng.normal(0.0, 2.0, n)
    wrong = rng.random(n) < 0.5 * np.exp(-np.abs(gaps))
    return {
        f"{i:064x}": labelled_example(
            gap, gap, 0.9, "A" if (gap > 0) != is_wrong else "B", question=f"{i // size:064x}"
        )
        for i, (gap, is_wrong) in enumerate(zip(gaps.tolist(), wrong.tolist(), strict=True))
    }


def planned(labelled: set[str] | None = None, **fields: object) -> Calibration:
    """The set with the plan, in which only these pairs have labels; None for all."""
    pairs = {
        digest: example if labelled is None or digest in labelled else replace(example, label=None)
        for digest, example in drawn().items()
    }
    return calibration_of(pairs, **{"looks": PLAN, **fields})


def digests_of(look: int) -> set[str]:
    return set(planned().look_calibrations[look].table)


@pytest.mark.parametrize(
    ("sizes", "coverage", "alpha"),
    [
        ((), 0.3, 0.1),
        ((20, 10), 0.3, 0.1),
        ((10, 10), 0.3, 0.1),
        ((0, 10), 0.3, 0.1),
        ((10,), 0.0, 0.1),
        ((10,), math.nan, 0.1),
        ((10,), 0.3, 1.0),
        (tuple(range(1, MOST_LOOKS + 2)), 0.3, 0.1),
    ],
)
def test_a_plan_has_rising_sizes_and_shares(
    sizes: tuple[int, ...], coverage: float, alpha: float
) -> None:
    with pytest.raises(ValueError, match=r"looks|between 0 and 1"):
        Looks(sizes=sizes, until_coverage=coverage, alpha=alpha, delta=0.1)


def test_all_looks_share_delta() -> None:
    assert PLAN.share_of(0.3) == pytest.approx(0.1)
    # Also the smallest number has a share.
    assert PLAN.share_of(5e-324) > 0.0


def test_each_look_has_the_pairs_of_the_one_before_and_the_threshold_of_them_alone() -> None:
    calibration = planned()
    looks = calibration.look_calibrations
    assert [look.n for look in looks] == [100, 200, 300]
    assert digests_of(0) < digests_of(1) < digests_of(2) < set(calibration.table)
    for look in looks:
        alone = calibration_of(dict(look.examples))
        assert look.threshold(ALPHA, "pac", DELTA / 3) == alone.threshold(ALPHA, "pac", DELTA / 3)


def test_no_label_and_no_score_decides_which_pairs_come_first() -> None:
    before = [list(look.table) for look in planned().look_calibrations]
    other = calibration_of(
        {d: labelled_example(0.1, 0.2, 0.9, "B", question=e.question) for d, e in drawn().items()},
        looks=PLAN,
    )
    assert [list(look.table) for look in other.look_calibrations] == before


def test_a_question_with_many_pairs_comes_no_earlier_than_one_with_few() -> None:
    # 150 questions of one pair, and 150 of ten: by pairs, the first look would have hardly any of
    # the small ones.
    many = drawn(1500, size=10)
    few = {f"f{d[1:]}": replace(e, question="e" + d[1:]) for d, e in drawn(150).items()}
    plan = replace(PLAN, sizes=(550,))
    (look,) = calibration_of({**many, **few}, looks=plan).look_calibrations
    small = sum(digest.startswith("f") for digest in look.table)
    assert small / look.questions == pytest.approx(0.5, abs=0.12)


def test_there_is_no_threshold_before_the_first_look() -> None:
    # All labels but one of the first look; the looks after it do not help.
    first = planned(set()).asked(ALPHA, DELTA)[0]
    needed = first.pac_digests(first.pac_pairs.needed(ALPHA, DELTA / 3).places)
    calibration = planned(set(drawn()) - {needed[0]})
    with pytest.raises(LabelsMissingError):
        calibration.threshold(ALPHA, "pac", DELTA)
    assert calibration.planned_looks == ()
    assert calibration.row(ALPHA, "pac", DELTA).labels_missing


def test_between_two_looks_the_threshold_is_that_of_the_look_before() -> None:
    first = planned().look_calibrations[0]
    rest = sorted(digests_of(1) - digests_of(0))
    for more in (set(), set(rest[:1]), set(rest[: len(rest) // 2])):
        calibration = planned(digests_of(0) | more)
        assert calibration.threshold(ALPHA, "pac", DELTA) == first.threshold(
            ALPHA, "pac", DELTA / 3
        )
        assert [look.size for look in calibration.planned_looks] == [100]
        assert calibration.asked(ALPHA, DELTA)[0].n == 200


def test_a_look_that_suffices_ends_the_looks_whatever_is_labelled_later() -> None:
    row = planned(digests_of(0)).row(ALPHA, "pac", DELTA)
    assert row.delta == DELTA
    assert row.coverage > 0.0
    enough = replace(PLAN, until_coverage=row.coverage)
    calibration = planned(looks=enough)
    assert calibration.unlabelled == 0
    assert calibration.planned_looks == (
        TakenLook(size=100, coverage=row.coverage, threshold=row.threshold),
    )
    assert calibration.threshold(ALPHA, "pac", DELTA) == row.threshold
    assert calibration.asked(ALPHA, DELTA)[0].n == 100


def test_the_last_look_is_the_last_one_and_pairs_beyond_it_count_for_nothing() -> None:
    calibration = planned(looks=replace(PLAN, until_coverage=0.999))
    last = calibration.look_calibrations[-1]
    assert [look.size for look in calibration.planned_looks] == [100, 200, 300]
    assert calibration.threshold(ALPHA, "pac", DELTA) == last.threshold(ALPHA, "pac", DELTA / 3)
    asked, share = calibration.asked(ALPHA, DELTA)
    assert asked is last
    assert share == pytest.approx(DELTA / 3)
    # Advice about other alphas or more labels is no part of the plan.
    assert not calibration.feasible_alphas
    infeasible = calibration.row(0.001, "pac", DELTA)
    assert not infeasible.feasible
    assert calibration.feasibility(infeasible).more_examples is None


def test_a_pool_that_lacks_pairs_has_no_look() -> None:
    calibration = planned(looks=replace(PLAN, sizes=(100, 321)))
    assert calibration.look_calibrations == ()
    with pytest.raises(LabelsMissingError):
        calibration.threshold(ALPHA, "pac", DELTA)
