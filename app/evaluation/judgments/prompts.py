"""The paper's other prompts, and what is read from a judge's words."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Comparison, Side
from app.core.errors import InvalidRequestError
from app.ports import Generated, Prompt
from app.service.prompts import PromptTemplate

if TYPE_CHECKING:
    from app.evaluation.benchmarks.labelled_pairs import LabelledPair

# SCOPE, figure verbalized_confidence_prompt, to the letter.
SCORE_REQUEST = "Provide a score between 0.0 (total guess) and 1.0 (absolute certainty)."
# SCOPE, figure simulated_annotators_prompt.
_HEADER, _TARGET_HEADER = "[User Question]", "[Target User Question]"
PERSONAS = 5
EXAMPLES = 5

_VERDICT = re.compile(r"\[\[([AB])\]\]")
# A label with nothing but quotes, brackets, emphasis and a full stop around it.
_BARE_LABEL = re.compile(r"[\s\"'“”‘’`*_(\[]*([AB])[\s\"'“”‘’`*_)\].,:;!]*")  # noqa: RUF001

_NUMBER = re.compile(r"[0-9]*\.[0-9]+|[0-9]+")
# "1. The first answer", "(2) It is": the number of an item, not a score.
_LIST_MARKER = re.compile(r"^[ \t]*\(?[0-9]+[.)](?=\s+\S)", re.MULTILINE)
# What makes a number part of something else: a word, a version, a sign, a range, a fraction, a
# bound, a price, a percentage, a time, a power.
_GLUED_BEFORE = re.compile(r"(?:[\w.+\-–−^$€£]|[0-9],|(?:[/<>≤≥]|\bout of)\s*)$")  # noqa: RUF001
_GLUED_AFTER = re.compile(
    r"[\w+^°]|[-–−][\w.]|[.,:][0-9]|\s*(?:[%/]|out of\b|per ?cent\b)"  # noqa: RUF001
)
# Before a bare 0 or 1 on its line: nothing, a sign, or a word that says that a score follows.
_SCORE_FOLLOWS = re.compile(
    r"(?:^|[^\w\s]|\b(?:score|confidence|certainty)(?:\s+(?:score|level|is|of))*)\s*$",
    re.IGNORECASE,
)
_OPENING = " \t\"'“‘`*_(["  # noqa: RUF001


def verbalized_prompt(template: PromptTemplate, comparison: Comparison) -> Prompt:
    """The standard prompt, response_a shown first, with the question for a score behind it.

    It ends the system message as in the paper's figure; a template without one has it at the end
    of the user's.
    """
    prompt = template.render(comparison)
    if prompt.system:
        return prompt._replace(system=f"{prompt.system} {SCORE_REQUEST}")
    return prompt._replace(user=f"{prompt.user}\n\n{SCORE_REQUEST}")


def annotator_prompts(
    template: PromptTemplate,
    comparison: Comparison,
    personas: Sequence[Sequence["LabelledPair"]],
) -> list[Prompt]:
    """One prompt per persona: its demonstrations with their verdicts, then the target.

    The demonstrations go first, so that an engine with a prefix cache reads each persona once.
    """
    # In the template, not in the rendered text: a question may hold the header, too.
    target = replace(template, user=template.user.replace(_HEADER, _TARGET_HEADER, 1))
    asked = target.render(comparison)
    return [
        asked._replace(
            user="\n\n".join([*(_demonstration(template, pair) for pair in persona), asked.user])
        )
        for persona in personas
    ]


def _demonstration(template: PromptTemplate, pair: "LabelledPair") -> str:
    return f"{template.render(pair.comparison).user}\n\nVerdict: [[{pair.label}]]"


def draw_personas(
    demonstrations: Sequence["LabelledPair"],
    *,
    seed: int,
    personas: int = PERSONAS,
    examples: int = EXAMPLES,
) -> tuple[tuple["LabelledPair", ...], ...]:
    """Draws the demonstrations of each persona, the same ones for all pairs of a run.

    Within a persona all are distinct. No two personas share one where the pool is large enough for
    that (the paper's is: 25 of 50), and else no two have the same set.

    Raises:
        InvalidRequestError: The pool has not enough demonstrations for distinct personas.
    """
    fewest = examples
    while math.comb(fewest, examples) < personas:
        fewest += 1
    n = len(demonstrations)
    if n < fewest:
        raise InvalidRequestError(
            f"{personas} simulated annotators with {examples} demonstrations each need at least "
            f"{fewest} labelled pairs that are not judged, better {personas * examples}; there are "
            f"{n}. Judge fewer pairs, or leave simulated_annotators out"
        )
    rng = np.random.default_rng(seed)
    if n >= personas * examples:
        drawn = list(rng.permutation(n)[: personas * examples].reshape(personas, examples))
    else:
        distinct: dict[frozenset[int], NDArray[np.int64]] = {}
        while len(distinct) < personas:
            places = rng.permutation(n)[:examples]
            distinct.setdefault(frozenset(places.tolist()), places)
        drawn = list(distinct.values())
    return tuple(tuple(demonstrations[i] for i in places) for places in drawn)


def parse_verdict(answer: Generated) -> Side | None:
    """The label that an answer names and no other; None where it names both, or neither.

    A bare letter is one, too, if the judge stopped there by itself: "A" that the token limit cut
    may have begun "Assistant B".
    """
    named = set(_VERDICT.findall(answer.text))
    if not named and answer.complete and (bare := _BARE_LABEL.fullmatch(answer.text)):
        named = {bare[1]}
    if len(named) != 1:
        return None
    return "A" if named == {"A"} else "B"


def parse_confidence(answer: Generated) -> float | None:
    """The one number in [0, 1] that stands alone in an answer; None where it is unclear.

    Two different ones are unclear, and so are a number that the token limit may have cut ("0.9"
    of "0.95") and a 0 or 1 among words ("Answer 1 is better").
    """
    text = _LIST_MARKER.sub("", answer.text)
    found: set[float] = set()
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
        found.add(float(match[0]))
    return found.pop() if len(found) == 1 else None


def _is_score(before: str, after: str) -> bool:
    """Whether a bare 0 or 1 is a score, and neither somebody's number nor a verdict."""
    line = before.rpartition("\n")[2]
    in_words = re.match(r"[.)]?[ \t]*\w", after) or not _SCORE_FOLLOWS.search(line.rstrip(_OPENING))
    return not in_words and not line.endswith("[[")
