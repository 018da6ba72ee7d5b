"""Results of a leaderboard with every part that a page can show."""

from dataclasses import replace
from itertools import combinations
from typing import Literal

from app.ratings.results import (
    VIEWS,
    Agreement,
    Board,
    Changes,
    LeaderboardResults,
    ModelPair,
    Rating,
    RatingChange,
    RatingSettings,
    View,
    ViewName,
)

# Names are texts of users: markup, a long one, letters from right to left, and a bare surrogate.
HOSTILE = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>'
MODELS = (
    HOSTILE,
    "an-organization/a-model-with-a-very-long-name-of-70-billion-parameters-instruct-v2.1",
    "baseline",
    "large-2",
    "large-1",
    "مدل بزرگ",
    "small {{ 7 * 7 }}",
    "tiny\ud800",
)
_SHIFT = {
    "debiased": 0,
    "soft": 15,
    "accepted": 60,
    "abstain_as_tie": -12,
    "people": 4,
}


def rating(view: str, place: int) -> Rating:
    """The rating of a model by its place in the order of strength."""
    middle = 3.5 - place
    score = 1000.0 + middle * (55.0 + _SHIFT[view] / 3.0)
    width = {"people": 70.0, "accepted": 25.0}.get(view, 38.0) + 3.0 * place
    unbounded: Literal["above"] | None = "above" if view == "accepted" and place == 0 else None
    return Rating(
        model=MODELS[place],
        battles=180 + 7 * place,
        failed=5 + place % 3,
        score=score,
        low=score - width,
        high=None if unbounded else score + width,
        rank=place + 1,
        rank_low=max(1, place),
        rank_high=min(8, place + 2),
        component=1,
        unbounded=unbounded,
        provisional=False,
        center_share=0.125,
    )


def view(name: ViewName) -> View:
    """A view of eight models that all met."""
    found = tuple(rating(name, place) for place in range(8))
    return View(
        name=name,
        battles=1000,
        questions=250,
        components=1,
        ratings=found,
        unsolved=0.0,
    )


def board(judge: str = "demo", *, labelled: bool = True) -> Board:
    """A board with every part."""
    names: list[ViewName] = [
        name for name in VIEWS if labelled or name not in ("debiased", "people")
    ]
    return Board(
        judge=judge,
        signature="scope-judge 0.1.0; judge demo (fingerprint 0123456789ab); template ba9876543210;"
        " calibration default, version 7, n 600; pac, alpha 0.1, delta 0.1",
        alpha=0.1,
        guarantee="pac",
        models=tuple(sorted(MODELS)),
        battles=1020,
        judged=1000,
        errors=20,
        accepted=640,
        repeated=3,
        questions=250,
        main="debiased" if labelled else "soft",
        views={name: view(name) for name in names},
        pairs=_pairs(),
        agreement=_agreement() if labelled else None,
        notes=("A note in plain words about `soft`.", f"A note about {HOSTILE}."),
    )


def _pairs() -> tuple[ModelPair, ...]:
    return tuple(
        ModelPair(
            model_a=a,
            model_b=b,
            battles=30 + i,
            errors=i % 3,
            accepted=20 + i % 9,
            coverage=(20 + i % 9) / (30 + i),
            reasons={"uncertain": 5 + i % 4, "no_preference": i % 2},
            flips=i % 5,
            first_bias=0.01 * (i % 7 - 3),
            labelled=3,
        )
        for i, (a, b) in enumerate(combinations(sorted(MODELS), 2))
    )


def _agreement() -> Agreement:
    return Agreement(
        labelled=160,
        ties=12,
        accepted=90,
        accepted_ties=9,
        tie_share=0.11,
        tie_low=0.06,
        tie_high=0.19,
        error=0.06,
        error_low=0.03,
        error_high=0.11,
        error_always=0.19,
    )


def everything() -> LeaderboardResults:
    """Results with a previous run."""
    changes = Changes(
        folder=f"last-week/{HOSTILE}",
        view="debiased",
        signature_before="another signature",
        same_signature=False,
        battles_before=800,
        models=(
            RatingChange(
                model=MODELS[0],
                score_before=1100.0,
                score=1192.0,
                rank_before=2,
                rank=1,
                moved=True,
                change=92.0,
                low=33.0,
                high=151.0,
            ),
            RatingChange(
                model=MODELS[1],
                score_before=None,
                score=1137.0,
                rank_before=None,
                rank=2,
                moved=False,
            ),
            RatingChange(
                model="steady",
                score_before=990.0,
                score=1001.0,
                rank_before=4,
                rank=4,
                moved=False,
                change=11.0,
                low=-40.0,
                high=62.0,
            ),
            RatingChange(
                model="gone", score_before=990.0, score=None, rank_before=5, rank=None, moved=False
            ),
        ),
        common_questions=400,
        note="400 questions are in both boards.",
    )
    return LeaderboardResults(
        version="0.1.0",
        made="2026-11-22T10:00:00+00:00",
        settings=RatingSettings(),
        board=board(),
        changes=changes,
    )


def without_labels() -> LeaderboardResults:
    """Results of one judge, without labels or a previous run."""
    whole = everything()
    bare = replace(board(labelled=False), alpha=None, guarantee=None, notes=(), errors=0)
    return replace(whole, board=bare, changes=None)
