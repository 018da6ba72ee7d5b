"""A judgment in a sentence, for people."""

from app.core.comparison import Judgment
from app.core.score import Preference


def to_text(judgment: Judgment) -> str:
    """Says what the judge decided, and why it abstained if it did."""
    preference = judgment.preference
    if preference is None or judgment.reason is not None:
        return f"The judge abstains: {_reason(judgment)}.{_order(preference)}"
    better = f"Response {judgment.verdict} is better"
    if judgment.threshold is None:
        return f"{better}. No alpha was given, so nothing is promised."
    uncertainty, threshold = _apart(preference.uncertainty, judgment.threshold)
    return (
        f"{better}: the uncertainty {uncertainty} is not above {threshold}, the threshold of "
        f"{judgment.criterion.words}."
    )


def _apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits, at least four, as show that they differ."""
    written = (f"{one:.4f}", f"{other:.4f}")
    for digits in (6, 8, 12):
        if one == other or written[0] != written[1]:
            break
        written = (f"{one:.{digits}f}", f"{other:.{digits}f}")
    return written


def _reason(judgment: Judgment) -> str:
    criterion, preference = judgment.criterion, judgment.preference
    match judgment.reason:
        case "thought_unfinished":
            return (
                "its thought did not end within SCOPE_THINK_TOKENS. Asking again gives the same "
                "answer"
            )
        case "escalation_unavailable":
            return (
                "the small judge is not sure enough, and the large one cannot be asked now. Asking "
                "again later may give a verdict"
            )
        case "off_task":
            return (
                "the two labels have too little of its probability, so it may not be answering the "
                "question (SCOPE_MIN_LABEL_MASS)"
            )
        case "no_preference":
            return "it finds both responses equally good"
        case "suspended":
            return (
                f"audits have shown more errors than promised under {criterion.words}, and "
                "verdicts are suspended until the set has a new version"
            )
        case "infeasible":
            return (
                f"the labels of the set {criterion.calibration!r} are not enough for "
                f"{criterion.words}, so no verdict can keep that promise"
            )
        case _:
            assert preference is not None
            assert judgment.threshold is not None, "only a threshold makes a pair uncertain"
            uncertainty, threshold = _apart(preference.uncertainty, judgment.threshold)
            return (
                f"its uncertainty {uncertainty} is above {threshold}, the threshold of "
                f"{criterion.words}"
            )


def _order(preference: Preference | None) -> str:
    """Says so if the two orders of the responses lead to different sides."""
    if preference is None:
        return ""
    if preference.p_fwd > 0.5 > preference.p_rev:
        return " It prefers the response that it reads first, in both orders."
    if preference.p_fwd < 0.5 < preference.p_rev:
        return " It prefers the response that it reads second, in both orders."
    return ""
