"""The questions that a judge is asked about a labeled pair, and their digests."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.prompts import annotator_prompts, draw_personas, verbalized_prompt
from app.evaluation.judgments.record import Observation
from app.judges.prompts import PromptTemplate
from app.ports import Prompt

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
        prompts: Prompts in the order in which their replies are read; none for a judge without
            prompts.
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
        name: Name of the data set.
        pairs: The pairs to judge.
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

    @classmethod
    def of(
        cls,
        name: str,
        pairs: Sequence[LabeledPair],
        template: PromptTemplate | None,
        demonstrations: Sequence[LabeledPair],
        observations: Iterable[Observation],
        seed: int,
    ) -> "Dataset":
        """Draws the personas if "annotators" is among the observations.

        Raises:
            InvalidRequestError: There are too few demonstrations.
        """
        needs_personas = "annotators" in observations
        personas = draw_personas(demonstrations, seed=seed) if needs_personas else ()
        return cls(name=name, pairs=pairs, template=template, personas=personas, seed=seed)

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
