"""Whether the promise covers the pairs of a run: against people's labels, and against the set."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.cli.console import say
from app.cli.running.rows import Item, Results, comparison_key, is_judged
from app.core.comparison import Comparison, Label
from app.core.errors import InvalidComparisonError
from app.core.fingerprint import example_digest
from app.files.labeled import known_comparison

# The help of a command needs its options only: functions import the client and numpy.
if TYPE_CHECKING:
    from scope_judge import ScopeClient
    from scope_judge.records import ExamplePage

# One page of a set. It is sorted by digest, so the first page of a larger set is a random sample.
_MOST_EXAMPLES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedPair:
    """A pair that the service has judged.

    Args:
        question: Digest of its question.
        result: The judgment.
        label: The side that a person prefers, as the judge saw the pair.
        probability: Probability with which the pair was drawn for its label.
        comparison: The pair itself; None if the set is not searched for it.
    """

    question: str
    result: Mapping[str, Any]
    label: Label | None = None
    probability: float = 1.0
    comparison: Comparison | None = None

    @property
    def values(self) -> tuple[float, float, float]:
        """Uncertainty, position gap and label mass; NaN where the judge has none."""
        result, mass = self.result, self.result["label_mass"]
        gap = math.nan if result.get("orders") == 1 else abs(result["p_fwd"] - result["p_rev"])
        return result["uncertainty"], gap, math.nan if mass is None else mass


def judged_pairs(items: Iterable[Item], results: Results) -> list[JudgedPair]:
    """The pairs of rows that have a judgment; equal ones count once."""
    distinct = {item.key: item for item in items}
    return [
        JudgedPair(
            question=comparison_key(item.fields["question"]),
            result=results[key],
            label=_label_of(item),
            comparison=known_comparison(item.row, item.shape),
        )
        for key, item in distinct.items()
        if isinstance(item.fields, dict) and is_judged(results[key])
    ]


def _label_of(item: Item) -> Label | None:
    try:
        return item.shape.label_in(item.row.fields)
    except InvalidComparisonError:
        # Not every column with the name of a label has one.
        return None


def print_contradictions(pairs: Sequence[JudgedPair]) -> None:
    """Prints how many accepted verdicts the labels of the rows contradict.

    A warning follows if these are clearly more than alpha of the verdicts.
    """
    # Imported late: numpy takes a while.
    from app.core.verdict_errors import LabeledVerdict, contradicted_verdicts

    ties = sum(pair.label == "tie" for pair in pairs)
    accepted = [pair for pair in pairs if pair.label and pair.result["verdict"] != "abstain"]
    labeled = (
        LabeledVerdict(
            alpha=pair.result["alpha"],
            is_wrong=pair.result["verdict"] != pair.label,
            unit=pair.question,
            probability=pair.probability,
        )
        for pair in accepted
        if pair.label in ("A", "B") and pair.result["alpha"] is not None
    )
    for alpha, count, share in contradicted_verdicts(labeled):
        figures = (
            f"the labels of the rows contradict {share.value:.1%} ({share.low:.1%} to "
            f"{share.high:.1%}) of the {count} verdicts with label A or B at alpha {alpha:g}"
        )
        if share.low > alpha:
            say(
                ("warning:", "yellow"),
                f" {figures}. If these labels are right, the promise does not hold for these "
                "pairs.",
            )
        else:
            say(f"{figures[0].upper()}{figures[1:]}.")
    if ties:
        say(
            f"{ties} labels are ties, {sum(pair.label == 'tie' for pair in accepted)} of them on "
            "accepted verdicts; alpha does not count them."
        )


def print_unlike(client: "ScopeClient | None", pairs: Iterable[JudgedPair]) -> None:
    """Warns of each set whose pairs the judged ones do not look like, or whose own pairs they are.

    A set that cannot be read is reported, and does not fail a run that is done. Without a service,
    nothing is known of the scores of a set.
    """
    # Imported late: the help needs no client.
    from scope_judge import ScopeError

    if client is None:
        return
    by_set = defaultdict[str, list[JudgedPair]](list)
    for pair in pairs:
        if pair.result["calibration"] is not None:
            by_set[pair.result["calibration"]["name"]].append(pair)
    for name, judged in by_set.items():
        try:
            page = client.examples(name, most=_MOST_EXAMPLES)
        except ScopeError as exc:
            say(f"These pairs were not compared with those of {name!r}: {exc}")
            continue
        known = {one.digest for one in page.examples}
        labeled = [pair.comparison for pair in judged if pair.label and pair.comparison]
        if own := sum(example_digest(page.fingerprint, each) in known for each in labeled):
            say(
                ("note:", "yellow"),
                f" {own} of the {len(labeled)} labeled pairs are in {name!r} itself: their labels "
                "do not check it. Use labeled pairs that it does not have.",
            )
        if how := _difference(page, judged, tests=len(by_set)):
            say(
                ("warning:", "yellow"),
                f" these pairs do not look like the {page.n} pairs of {name!r} ({how}): the "
                "promise does not cover them. Label some of them for a set of their own: in a file "
                "for `scope-judge calibrate`, or as a pool on the desk",
            )


def _difference(page: "ExamplePage", judged: Sequence[JudgedPair], *, tests: int) -> str | None:
    """The clearest difference between judged pairs and those of a set, in words.

    The first pair of each question counts, because others resemble it. `tests` sets share the false
    alarms of a run.
    """
    # Imported late: scipy takes a while.
    from app.core.likeness import VALUES, difference, values_of

    scored = [pair for pair in judged if pair.result["uncertainty"] is not None]
    first = {pair.question: pair for pair in reversed(scored)}
    if not first:
        return None
    scores = (one for one in page.examples if one.gap_fwd is not None)
    # A set need not know the question of a pair.
    examples = {one.question or one.digest: one for one in scores}.values()
    expected = values_of(
        [(one.gap_fwd, one.gap_rev, one.label_mass) for one in examples],
        temperature=judged[0].result.get("temperature") or 1.0,
    )
    values = zip(*(pair.values for pair in first.values()), strict=True)
    differs = difference(dict(zip(VALUES, values, strict=True)), expected, tests=tests)
    if differs is None:
        return None
    return (
        f"{differs.value.replace('_', ' ')} above {differs.above:.3g}: {differs.share:.0%} of them "
        f"against {differs.expected:.0%}"
    )
