"""Pairs of one question, and ties in a pool, by seeded simulation and on real scores."""

import gzip
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.pac import PacPairs
from app.core.preference import LN2, FloatArray
from tests.statistics.worlds.normal import NormalJudge
from tests.statistics.worlds.questions import ALPHA, DELTA, Questions, Rule, measured, threshold_of

CALIBRATIONS = 400


def most_over(calibrations: int) -> float:
    """Largest share over alpha; one-sided, as in test_guarantees.py: 2.5 standard errors of 0.1."""
    return DELTA + 2.5 * math.sqrt(DELTA * (1 - DELTA) / calibrations)


REAL = (
    Path(__file__).resolve().parents[2].parent
    / "shared/data/rewardbench2__rm_URM-LLaMa-3.1-8B.jsonl.gz"
)
Errors = NDArray[np.bool_]


@cache
def simulated(world: Questions, rule: Rule) -> tuple[float, float]:
    """Mean coverage, and share of calibrations whose true error is above alpha."""
    return measured(world, rule, CALIBRATIONS, seed=16)


def equal(judge: NormalJudge, questions: int, pairs: int, correlation: float) -> Questions:
    """Questions of one size."""
    return Questions(judge=judge, questions=questions, pairs=pairs, correlation=correlation)


WORLDS = (
    equal(NormalJudge(accuracy=0.807, auroc=0.744), 333, 3, 0.3),
    equal(NormalJudge(accuracy=0.807, auroc=0.744), 200, 5, 0.6),
    equal(NormalJudge(accuracy=0.807, auroc=0.744), 100, 10, 0.6),
    equal(NormalJudge(accuracy=0.874, auroc=0.809), 100, 3, 0.6),
)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_one_pair_of_each_question_keeps_the_promise(world: Questions) -> None:
    _, over = simulated(world, "one")
    assert over <= most_over(CALIBRATIONS)


@pytest.mark.parametrize("calibrations", [100, pytest.param(CALIBRATIONS, marks=pytest.mark.long)])
def test_ties_of_a_pool_are_left_out_and_the_rest_keeps_the_promise(calibrations: int) -> None:
    judge, n = NormalJudge(accuracy=0.874, auroc=0.809), 1000
    rng = np.random.default_rng(17)
    # People find the two responses equal more often where the judge is uncertain.
    many_scores, many_errors = judge.draw(400_000, rng)
    order = np.argsort(many_scores)
    stays = 1.0 - 0.4 * many_scores[order] / LN2
    fdr = np.cumsum(stays * many_errors[order]) / np.cumsum(stays)
    over = 0
    for _ in range(calibrations):
        uncertainty, error = judge.draw(n, rng)
        tied = rng.random(n) < 0.4 * uncertainty / LN2
        threshold = _lazily(uncertainty, error, tied)
        kept = ~tied
        every = PacPairs.fit(uncertainty[kept], error[kept], np.ones(kept.sum(), bool), drawn=n)
        assert threshold == every.needed(ALPHA, DELTA)[0]
        place = int(np.searchsorted(many_scores[order], threshold, side="right"))
        over += place > 0 and fdr[place - 1] > ALPHA
    assert over / calibrations <= most_over(calibrations)


def _lazily(uncertainty: FloatArray, error: Errors, tied: Errors) -> float:
    """Labels what the tests need; a tie leaves the pairs as soon as people have seen it."""
    seen = np.zeros(len(error), dtype=bool)
    while True:
        left = np.flatnonzero(~(seen & tied))
        pairs = PacPairs.fit(
            uncertainty[left], (error & seen)[left], seen[left], drawn=len(uncertainty)
        )
        threshold, places = pairs.needed(ALPHA, DELTA)
        if threshold is not None:
            return threshold
        seen[left[places]] = True


@cache
def real_pairs() -> tuple[FloatArray, Errors]:
    """Three pairs a prompt: uncertainty and error, each of shape (prompts, 3)."""
    with gzip.open(REAL, "rt", encoding="utf-8") as lines:
        scores = np.array([json.loads(line)["all_scores_chosen_first"] for line in lines])
    lead = scores[:, :1] - scores[:, 1:]
    # Any falling function of the lead gives the same order.
    return LN2 / (1.0 + np.abs(lead)), lead <= 0


@pytest.mark.skipif(not REAL.is_file(), reason="no ../shared/data")
def test_real_prompts_with_three_pairs_each_keep_the_promise_on_other_prompts() -> None:
    uncertainty, error = real_pairs()
    rng = np.random.default_rng(18)
    over, coverage = 0, 0.0
    splits, size = 300, 200
    for _ in range(splits):
        order = rng.permutation(len(error))
        mine, rest = order[:size], order[size:]
        numbers = np.repeat(np.arange(size), 3)
        threshold = threshold_of(
            "one", uncertainty[mine].ravel(), error[mine].ravel(), numbers, rng
        )
        accepted = uncertainty[rest] <= threshold
        coverage += float(accepted.mean()) / splits
        over += bool(accepted.any() and error[rest][accepted].mean() > ALPHA)
    most = DELTA + 2.5 * math.sqrt(DELTA * (1 - DELTA) / splits)
    assert over / splits <= most
    assert coverage > 0.0
