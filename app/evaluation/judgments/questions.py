"""The questions that a judge is asked about a labeled pair: prompts of the paper, and digests."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.core.comparison import Comparison
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.record import Observation
from app.judges.prompts import PromptTemplate
from app.ports import Prompt

# SCOPE, figure verbalized_confidence_prompt, verbatim.
SCORE_REQUEST = "Provide a score between 0.0 (total guess) and 1.0 (absolute certainty)."
# SCOPE, figure simulated_annotators_prompt.
_HEADER, _TARGET_HEADER = "[User Question]", "[Target User Question]"
PERSONAS = 5
EXAMPLES = 5
# SCOPE, appendix on baselines: five samples at a temperature of 0.7.
SAMPLES, TEMPERATURE = 5, 0.7
# Observations that need text: the number of tokens after which it is cut, and its temperature; the
# others need label logits. The limits fit a verdict and a number: a judge that explains itself
# first is cut off, and the answer counts as unparsed.
GENERATION: Mapping[Observation, tuple[int, float]] = {
    "verbalized": (32, 0.0),
    "samples": (16, TEMPERATURE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """All prompts of one observation of one pair.

    Args:
        prompts: In the order in which their replies are read; none for a judge without prompts.
        seeds: One sampling seed for each prompt.
        digest: Digest of everything that the answer depends on except the judge.
    """

    prompts: tuple[Prompt, ...]
    seeds: tuple[int, ...]
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """The pairs of a data set, and the questions about them.

    Args:
        template: Template of the judge's prompts; None for a judge without prompts, which answers
            the observation "orders" only.
        personas: Demonstrations of each simulated annotator; empty without annotators.
        seed: Seed of the sampled answers.
    """

    name: str
    pairs: Sequence[LabeledPair]
    template: PromptTemplate | None
    personas: tuple[tuple[LabeledPair, ...], ...] = ()
    seed: int = 0

    def question(self, observation: Observation, pair: LabeledPair) -> Question:
        """The question of one observation of one pair."""
        if self.template is None:
            assert observation == "orders", "a judge without prompts answers no question in words"
            return Question(prompts=(), seeds=(), digest=_digest([pair.text_digest]))
        prompts = self._prompts(self.template, observation, pair)
        seeds = [0] * len(prompts)
        if observation == "samples":
            # Derived from the pair, so that a resumed run draws the same samples.
            start = int(_digest([self.seed, pair.id, prompts])[:7], 16)
            seeds = [start + i for i in range(len(prompts))]
        digest = _digest([prompts, seeds, GENERATION.get(observation)])
        return Question(prompts=tuple(prompts), seeds=tuple(seeds), digest=digest)

    def _prompts(
        self, template: PromptTemplate, observation: Observation, pair: LabeledPair
    ) -> list[Prompt]:
        match observation:
            case "orders":
                return list(template.both_orders(pair.comparison))
            case "verbalized":
                return [verbalized_prompt(template, pair.comparison)]
            case "annotators":
                return annotator_prompts(template, pair.comparison, self.personas)
            case "samples":
                return [template.render(pair.comparison)] * SAMPLES


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("ascii")).hexdigest()[:16]


def verbalized_prompt(template: PromptTemplate, comparison: Comparison) -> Prompt:
    """The standard prompt with response_a shown first, followed by the request for a score.

    The request ends the system message, as in the paper's figure, or else the user message.
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
    demonstrations: Sequence[LabeledPair], *, seed: int
) -> tuple[tuple[LabeledPair, ...], ...]:
    """Draws the demonstrations of each persona; all pairs of a run are judged by the same personas.

    The demonstrations of one persona are distinct. With at least 25 demonstrations no two personas
    share one (the paper draws 25 of 50). With fewer, no two personas have the same set.

    Raises:
        InvalidRequestError: There are too few demonstrations for distinct personas.
    """
    fewest = EXAMPLES
    while math.comb(fewest, EXAMPLES) < PERSONAS:
        fewest += 1
    n = len(demonstrations)
    if n < fewest:
        raise InvalidRequestError(
            f"{PERSONAS} simulated annotators with {EXAMPLES} demonstrations each need at least "
            f"{fewest} labeled pairs that are not judged, better {PERSONAS * EXAMPLES}; there are "
            f"{n}. Judge fewer pairs, or leave simulated_annotators out"
        )
    rng = np.random.default_rng(seed)
    if n >= PERSONAS * EXAMPLES:
        drawn = list(rng.permutation(n)[: PERSONAS * EXAMPLES].reshape(PERSONAS, EXAMPLES))
    else:
        distinct: dict[frozenset[int], NDArray[np.int64]] = {}
        while len(distinct) < PERSONAS:
            places = rng.permutation(n)[:EXAMPLES]
            distinct.setdefault(frozenset(places.tolist()), places)
        drawn = list(distinct.values())
    return tuple(tuple(demonstrations[i] for i in places) for places in drawn)
