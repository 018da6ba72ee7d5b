"""The paper's prompts beside the standard one: verbalized confidence and simulated annotators."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Comparison
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.judges.prompts import PromptTemplate
from app.ports import Prompt

# SCOPE, figure verbalized_confidence_prompt, verbatim.
SCORE_REQUEST = "Provide a score between 0.0 (total guess) and 1.0 (absolute certainty)."
# SCOPE, figure simulated_annotators_prompt.
_HEADER, _TARGET_HEADER = "[User Question]", "[Target User Question]"
PERSONAS = 5
EXAMPLES = 5


def verbalized_prompt(template: PromptTemplate, comparison: Comparison) -> Prompt:
    """The standard prompt with response_a shown first, followed by the request for a score.

    The request ends the system message, as in the paper's figure. Without a system message it ends
    the user message.
    """
    prompt = template.render(comparison)
    if prompt.system:
        return prompt._replace(system=f"{prompt.system} {SCORE_REQUEST}")
    return prompt._replace(user=f"{prompt.user}\n\n{SCORE_REQUEST}")


def annotator_prompts(
    template: PromptTemplate, comparison: Comparison, personas: Sequence[Sequence[LabeledPair]]
) -> list[Prompt]:
    """One prompt for each persona: its demonstrations with their verdicts, then the target.

    The demonstrations come first, so that an engine with a prefix cache reads each persona once.
    """
    # Replaced in the template, not in the rendered text: a question may contain the header.
    target = replace(template, user=template.user.replace(_HEADER, _TARGET_HEADER, 1))
    prompt = target.render(comparison)
    prompts = []
    for persona in personas:
        demonstrations = [_demonstration(template, pair) for pair in persona]
        prompts.append(prompt._replace(user="\n\n".join([*demonstrations, prompt.user])))
    return prompts


def _demonstration(template: PromptTemplate, pair: LabeledPair) -> str:
    return f"{template.render(pair.comparison).user}\n\nVerdict: [[{pair.label}]]"


def draw_personas(
    demonstrations: Sequence[LabeledPair],
    *,
    seed: int,
    personas: int = PERSONAS,
    examples: int = EXAMPLES,
) -> tuple[tuple[LabeledPair, ...], ...]:
    """Draws the demonstrations of each persona; all pairs of a run are judged by the same personas.

    The demonstrations of one persona are distinct. With at least personas * examples
    demonstrations no two personas share one (the paper draws 25 of 50). With fewer, no two
    personas have the same set.

    Args:
        demonstrations: Labeled pairs that are not judged.
        seed: An equal seed draws the same personas.
        personas: Number of personas.
        examples: Number of demonstrations of each persona.

    Raises:
        InvalidRequestError: There are too few demonstrations for distinct personas.
    """
    fewest = examples
    while math.comb(fewest, examples) < personas:
        fewest += 1
    n = len(demonstrations)
    if n < fewest:
        raise InvalidRequestError(
            f"{personas} simulated annotators with {examples} demonstrations each need at least "
            f"{fewest} labeled pairs that are not judged, better {personas * examples}; there are "
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
