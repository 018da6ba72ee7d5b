"""The words of a leaderboard's page: the views in plain English, and texts of numbers."""

from collections.abc import Iterator
from typing import NamedTuple

from app.ratings.results import Changes, RatingChange, Unbounded, ViewName

# Models that a sentence names.
_NAMED = 5


class ViewWords(NamedTuple):
    """A view in plain English.

    Args:
        title: A few words.
        counts: The battles that it counts, and how.
        beware: The reason why it can be wrong.
    """

    title: str
    counts: str
    beware: str


WORDS: dict[ViewName, ViewWords] = {
    "debiased": ViewWords(
        "Corrected by people",
        "Counts the judge's probability on every battle, and corrects it by the battles that "
        "people labelled. Each labelled battle weighs as many battles as its draw stands for.",
        "It needs labels of a random sample whose probabilities are known. Then it estimates the "
        "rating that people would give, whatever the judge prefers.",
    ),
    "soft": ViewWords(
        "All battles, by probability",
        "Counts every judged battle by the judge's probability that the first model is better.",
        "Nothing is dropped. An unsure judge makes the gaps look smaller than they are, and a "
        "judge that prefers a style shifts the ratings.",
    ),
    "accepted": ViewWords(
        "Accepted verdicts only",
        "Counts the verdicts that the judge gave, and drops its abstentions.",
        "Abstentions are not missing at random: close battles abstain more often. So the gaps are "
        "those of clearer battles, while wrong verdicts among them shrink the gaps.",
    ),
    "abstain_as_tie": ViewWords(
        "Abstentions as ties",
        "Counts a verdict as a win and an abstention as half a win for each model.",
        "Nothing is dropped. An abstention often has a better side that the judge could not name, "
        "so the gaps look smaller than they are.",
    ),
    "always": ViewWords(
        "Always answered",
        "Counts the side that the judge leans to in every battle, however unsure it is.",
        "No alpha bounds these verdicts. The wrong ones make the gaps look smaller than they are.",
    ),
    "people": ViewWords(
        "People alone",
        "Counts the labelled battles only, each by the probability of its draw.",
        "The judge has no influence. The intervals are wide, because the labels are few.",
    ),
}

REASONS = {
    "uncertain": "too uncertain for alpha",
    "infeasible": "alpha infeasible",
    "no_preference": "no preference",
    "off_task": "judge off task",
    "suspended": "set suspended",
    "escalation_unavailable": "escalation unavailable",
}

UNBOUNDED: dict[Unbounded, str] = {
    "above": "gave up no point",
    "below": "took no point",
    "both": "no bound",
}

# A missing number, and the sign between two ranks.
NONE = "\N{EN DASH}"

TITLES: dict[str, str] = {name: words.title for name, words in WORDS.items()}


def share(value: float | None) -> str:
    """A share in percent; a dash where there is none."""
    return NONE if value is None else f"{100.0 * value:.1f}%"


def level(value: float) -> str:
    """A level such as alpha in percent, as short as it is."""
    return f"{100.0 * value:g}%"


def score(value: float | None) -> str:
    """A rating as a whole number; a dash where there is none."""
    return NONE if value is None else f"{value:.0f}"


def ranks(low: int | None, high: int | None) -> str:
    """A set of ranks, from the best to the worst."""
    if low is None or high is None:
        return NONE
    return f"{low}" if low == high else f"{low}{NONE}{high}"


def signed(value: float) -> str:
    """A difference in percentage points with its sign."""
    return f"{100.0 * value:+.1f}".replace("-", "\N{MINUS SIGN}")


def points(value: float) -> str:
    """A difference of ratings with its sign."""
    return f"{round(value):+d}".replace("-", "\N{MINUS SIGN}") if round(value) else "0"


def count(value: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun in the right form, such as "1 battle"."""
    return f"{value:,} {noun if value == 1 else nouns or f'{noun}s'}"


def change_words(change: RatingChange) -> str:
    """The meaning of a change in a word or two."""
    if change.score_before is None:
        return "new"
    if change.score is None:
        return "gone"
    if change.change is None:
        return "not compared"
    if not change.moved:
        return "within chance"
    return "improved" if change.change > 0 else "fell"


def change_sentences(changes: Changes) -> Iterator[str]:
    """Yields what changed since previous results, and how it was compared."""
    moved = [each.model for each in changes.models if each.moved]
    verb = "changes" if len(moved) == 1 else "change"
    named = f": {', '.join(moved[:_NAMED])}" if moved else ""
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    yield (
        f"{count(len(moved), 'rating')} {verb} by more than chance{named}{more}. The intervals of "
        "all changes hold together, and the models with a rank in both boards have the same mean "
        "before and after."
        if moved
        else "No rating changes by more than chance. The intervals of all changes hold together."
    )
    if changes.note:
        yield changes.note
