"""Verdicts and confidences, parsed from the text that a judge writes."""

import re

from app.core.comparison import Side
from app.ports import Generated

_VERDICT = re.compile(r"\[\[([AB])\]\]")
# A label, with nothing around it but quotes, brackets, emphasis and punctuation.
_BARE_LABEL = re.compile(r"[\s\"'“”‘’`*_(\[]*([AB])[\s\"'“”‘’`*_)\].,:;!]*")

_NUMBER = re.compile(r"[0-9]*\.[0-9]+|[0-9]+")
# The number of a list item, as in "1. The first answer" and "(2) It is".
_LIST_MARKER = re.compile(r"^[ \t]*\(?[0-9]+[.)](?=\s+\S)", re.MULTILINE)
# Text that makes a number part of something else: a word, a version, a sign, a range, a fraction, a
# bound, a price, a percentage, a time or a power.
_GLUED_BEFORE = re.compile(r"(?:[\w.+\-–−^$€£]|[0-9],|(?:[/<>≤≥]|\bout of)\s*)$")
_GLUED_AFTER = re.compile(r"[\w+^°]|[-–−][\w.]|[.,:][0-9]|\s*(?:[%/]|out of\b|per ?cent\b)")
# Text that may precede a score of 0 or 1 on its line: nothing, a sign, or a word such as "score".
_SCORE_FOLLOWS = re.compile(
    r"(?:^|[^\w\s]|\b(?:score|confidence|certainty)(?:\s+(?:score|level|is|of))*)\s*$",
    re.IGNORECASE,
)
# The scale of the prompt, repeated after a score: "0.9/1.0", "0.85 out of 1.0", and
# "0.9 (on a scale from 0.0 to 1.0)".
_ONE = r"1(?:\.0+)?(?![\w%]|[.,][0-9]|\s*per ?cent)"
_SCALE = re.compile(
    rf"(?<=\.[0-9])(?P<more>[0-9]*)\s*(?:(?:/|out of)\s*{_ONE}"
    rf"|\(?\bon a scale (?:from|of|between) 0(?:\.0+)? (?:to|and) {_ONE}\)?)"
)
_OPENING = " \t\"'“‘`*_(["


def parse_verdict(answer: Generated) -> Side | None:
    """The single label that an answer names; None where it names both or neither.

    A bare letter counts only in a complete answer: an "A" that was cut off may begin "Assistant B".
    """
    named = set(_VERDICT.findall(answer.text))
    if not named and answer.complete and (bare := _BARE_LABEL.fullmatch(answer.text)):
        named = {bare[1]}
    if len(named) != 1:
        return None
    return "A" if named == {"A"} else "B"


def parse_confidence(answer: Generated) -> float | None:
    """The only number in [0, 1] in an answer that is not part of something else, or None.

    An answer is ambiguous, and gives None, with two different numbers, with a number that the token
    limit may have cut ("0.9" of "0.95"), or with a 0 or 1 among words ("Answer 1 is better").
    """
    text = _without_scale(_LIST_MARKER.sub("", answer.text), complete=answer.complete)
    numbers: set[float] = set()
    for match in _NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if not answer.complete and not after.strip(" \t.,"):
            return None
        if _GLUED_BEFORE.search(before[-20:]) or _GLUED_AFTER.match(after):
            continue
        if float(match[0]) > 1.0:
            continue
        if "." not in match[0] and not _is_score(before, after):
            return None
        numbers.add(float(match[0]))
    return numbers.pop() if len(numbers) == 1 else None


def _without_scale(text: str, *, complete: bool) -> str:
    """Removes the scale after a score, but not one that the token limit may have cut."""

    def replaced(scale: re.Match[str]) -> str:
        is_cut = not complete and not text[scale.end() :].strip(" \t.,")
        return scale[0] if is_cut else scale["more"]

    return _SCALE.sub(replaced, text)


def _is_score(before: str, after: str) -> bool:
    """Whether a bare 0 or 1 is a score, not the number of an assistant and not a verdict."""
    line = before.rpartition("\n")[2]
    in_words = re.match(r"[.)]?[ \t]*\w", after) or not _SCORE_FOLLOWS.search(line.rstrip(_OPENING))
    return not in_words and not line.endswith("[[")
