"""Results of a leaderboard with every part that a page can show, from simulated battles."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from app.ratings.leaderboard import leaderboard_from, write_leaderboard
from app.ratings.results import LeaderboardResults, RatingSettings
from app.ratings.rows import read_battles
from tests.unit.ratings.arena import simulated, write

# Names are texts of users: markup, a long one, letters from right to left, and half a character,
# which rows have with an escape.
HOSTILE = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>'
MODELS = (
    HOSTILE,
    "an-organization/a-model-with-a-very-long-name-of-70-billion-parameters-instruct-v2.1",
    "baseline",
    "large-2",
    "large-1",
    "مدل بزرگ",
    "small {{ 7 * 7 }}",
    "tiny\\ud800",
)
_SETTINGS = RatingSettings(rounds=100)


@cache
def everything() -> LeaderboardResults:
    """Results with labels, failures, copies and a previous run; the models best first."""
    arena = simulated(models=len(MODELS), battles=5000)
    names = {f"model-{place:02d}": name for place, name in enumerate(reversed(MODELS))}
    rows = [
        {**row, "model_a": names[row["model_a"]], "model_b": names[row["model_b"]]}
        for row in arena.rows(labelled=0.5, guarantee="pac", judge="demo")
    ]
    for number, row in enumerate(rows):
        if number % 100 == 0:
            row |= {"winner": None, "p_bar": None, "reason": None, "error": "prompt_too_long"}
    # A week before, one model was another and one was not there yet.
    before = [
        {**row, "model_a": row["model_a"].replace("baseline", "gone")}
        | {"model_b": row["model_b"].replace("baseline", "gone")}
        for row in rows[:3000]
    ]
    with TemporaryDirectory() as name:
        folder = Path(name)
        earlier = read_battles([write(folder / "before.jsonl", before)])
        write_leaderboard(leaderboard_from(earlier, _SETTINGS, made="2026-11-15"), folder)
        battles = read_battles([write(folder / "rows.jsonl", [*rows, *rows[:3]])])
        made = "2026-11-22T10:00:00+00:00"
        results = leaderboard_from(battles, _SETTINGS, made=made, against=folder).results
    assert results.changes is not None
    notes = ("A note in plain words about `soft`.", f"A note about {HOSTILE}.")
    return replace(
        results,
        board=replace(results.board, notes=notes),
        changes=replace(
            results.changes,
            folder=f"last-week/{HOSTILE}",
            signature_before="another signature",
            same_signature=False,
        ),
    )


def without_labels() -> LeaderboardResults:
    """The same results without what needs labels, an alpha or a previous run."""
    whole = everything()
    views = {n: v for n, v in whole.board.views.items() if n not in ("debiased", "people")}
    bare = replace(
        whole.board,
        views=views,
        main="soft",
        agreement=None,
        alpha=None,
        guarantee=None,
        notes=(),
        errors=0,
    )
    return replace(whole, board=bare, changes=None)
