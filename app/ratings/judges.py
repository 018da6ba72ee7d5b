"""Several judges side by side."""

from itertools import combinations

import numpy as np
from scipy.stats import kendalltau

from app.ratings.battles import Battles
from app.ratings.bradley_terry import Floats, Ints, sums
from app.ratings.outcomes import preferred
from app.ratings.results import Board, Disagreement, JudgePair

_MOST_WORST = 10


def judge_pairs(battles: list[Battles], boards: list[Board]) -> tuple[JudgePair, ...]:
    """Compares every two judges.

    Args:
        battles: The battles of each judge.
        boards: Their boards, in the same order.
    """
    return tuple(
        _judge_pair(battles[one], battles[other], boards[one], boards[other])
        for one, other in combinations(range(len(boards)), 2)
    )


def _judge_pair(one: Battles, other: Battles, board: Board, other_board: Board) -> JudgePair:
    here, there = _shared(one, other)
    p_here, p_there = one.p_bar[here], other.p_bar[there]
    differ = preferred(p_here) != preferred(p_there)
    scores, other_scores = _soft_scores(board), _soft_scores(other_board)
    models = sorted(scores.keys() & other_scores.keys())
    correlation = kendalltau(
        [scores[model] for model in models], [other_scores[model] for model in models]
    ).statistic
    return JudgePair(
        judge_a=board.judge,
        judge_b=other_board.judge,
        models=len(models),
        rank_correlation=float(correlation) if np.isfinite(correlation) else None,
        shared=len(here),
        disagree=float(differ.mean()) if len(here) else None,
        worst=_worst(one, here, p_here, p_there),
    )


def _shared(one: Battles, other: Battles) -> tuple[Ints, Ints]:
    """Indexes of the battles that both judged, in each."""
    rows = [
        np.flatnonzero(battles.judged & (battles.battle >= 0) & ~np.isnan(battles.p_bar))
        for battles in (one, other)
    ]
    _, here, there = np.intersect1d(
        one.battle[rows[0]], other.battle[rows[1]], assume_unique=True, return_indices=True
    )
    return rows[0][here], rows[1][there]


def _soft_scores(board: Board) -> dict[str, float]:
    view = board.views.get("soft")
    ratings = view.ratings if view else ()
    return {rating.model: rating.score for rating in ratings if rating.score is not None}


def _worst(
    battles: Battles, rows: Ints, p_here: Floats, p_there: Floats
) -> tuple[Disagreement, ...]:
    first, second, m = battles.first[rows], battles.second[rows], len(battles.models)
    ahead = first < second
    keys, pair = np.unique(
        np.minimum(first, second) * m + np.maximum(first, second), return_inverse=True
    )
    count = np.bincount(pair, minlength=len(keys))
    means = [sums(pair, np.where(ahead, p, 1.0 - p), len(keys)) / count for p in (p_here, p_there)]
    order = np.argsort(-np.abs(means[0] - means[1]), kind="stable")[:_MOST_WORST]
    return tuple(
        Disagreement(
            model_a=battles.models[keys[place] // m],
            model_b=battles.models[keys[place] % m],
            battles=int(count[place]),
            p_bar_a=float(means[0][place]),
            p_bar_b=float(means[1][place]),
        )
        for place in order
    )
