"""The last lines of `scope-judge judge FILE`: what became of the rows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.cli.console import say

# The reason of an abstention -> the reason in words.
REASONS = {
    "thought_unfinished": "the judge's thought did not end",
    "escalation_unavailable": "the large judge could not be asked; judge these again later",
    "uncertain": "too uncertain for alpha",
    "infeasible": "alpha is infeasible with this calibration",
    "suspended": "audits have shown more errors than alpha",
    "no_preference": "no preference either way",
    "off_task": "the judge was not answering the question",
}


def print_summary(results: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
    """Prints counts, errors with an example each, and the promise in a sentence."""
    judgments = [result for result in results if "error" not in result]
    counts = Counter(judgment["verdict"] for judgment in judgments)
    say(
        f"{len(results)} rows: ",
        (
            f"A {counts['A']}, B {counts['B']}, abstained {counts['abstain']}, errors "
            f"{len(results) - len(judgments)}",
            "bold",
        ),
    )
    reasons = Counter(j["reason"] for j in judgments if j["verdict"] == "abstain")
    for reason, count in reasons.most_common():
        say(f"  abstained, {count}: {REASONS.get(reason, reason)}")
    print_errors(results, places)
    print_promises(results)


def print_errors(results: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
    """Prints the number of rows with each error, and one of them with its reason."""
    errors = Counter(result["error"]["code"] for result in results if "error" in result)
    for code, count in errors.most_common():
        place, example = next(
            (place, result["error"]["detail"])
            for place, result in zip(places, results, strict=True)
            if result.get("error", {}).get("code") == code
        )
        say("  ", ("error", "yellow"), f" {code}, {count}: e.g. {place}: {example}")


def print_promises(results: Sequence[Mapping[str, Any]]) -> None:
    """Prints a sentence for each criterion, and what to do about an infeasible one."""
    answers = [result for result in results if "error" not in result]
    judgments = [judgment for judgment in answers if judgment["verdict"] != "abstain"]
    criteria = Counter(
        (j["alpha"], j["delta"], j["calibration"]["name"], j["calibration"]["n"])
        for j in judgments
        if j["alpha"] is not None and j["calibration"] is not None
    )
    for alpha, delta, name, n in criteria:
        like = f"if the pairs are like the {n} pairs of {name!r}"
        # Only "pac" has a delta.
        if delta is None:
            say(
                f"Near {100 * alpha:.3g}% of these verdicts are wrong with a good judge and many "
                f"labels, {like}. marginal has no bound: about half of all calibrations exceed "
                "alpha, by how much depends on judge and labels."
            )
        else:
            say(
                f"At most {100 * alpha:.3g}% of these verdicts are wrong, except with probability "
                f"{delta:g} of an unlucky calibration, {like}."
            )
    if any(j["alpha"] is None for j in judgments):
        say("Verdicts without an alpha have no guarantee.")
    infeasible = {
        (judgment["alpha"], judgment["delta"], used["name"], used["n"])
        for judgment in answers
        if judgment["reason"] == "infeasible" and (used := judgment["calibration"]) is not None
    }
    for criterion in infeasible:
        say(infeasible_in_words(*criterion))


def infeasible_in_words(alpha: float, delta: float | None, name: str, n: int) -> str:
    """Says what to do about an infeasible alpha of a set of n pairs; only "pac" has a delta."""
    # Imported late: numpy and scipy take a while.
    from app.core.examples import MOST_PAIRS
    from app.core.pac import fair_start_rank

    guarantee, least = "marginal", math.ceil(1.0 / alpha)
    if delta is not None:
        guarantee = "pac"
        least = fair_start_rank(alpha, delta, 0.0, at_most=MOST_PAIRS) or MOST_PAIRS
    few = f", which needs {least:,} of them or more: there are {n:,}" if n < least else ""
    return (
        f"The labels of {name!r} support no verdict at alpha {alpha:g} with {guarantee}{few}. Use "
        "a larger alpha, a better judge, or a new set of more pairs (`scope-judge sets show "
        f"{name}` says whether more help)."
    )
