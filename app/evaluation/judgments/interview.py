"""Labelled pairs -> a judge's raw answers: whatever a method needs and the file has not."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from app.core.errors import (
    ControlTokenError,
    InvalidRequestError,
    JudgmentFailedError,
    PromptTooLongError,
    ScopeJudgeError,
)
from app.evaluation.benchmarks.labelled_pairs import LabelledPair
from app.evaluation.judgments.jsonl import JudgedPair, Observation
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.prompts import annotator_prompts, draw_personas, verbalized_prompt
from app.ports import Engine, Generated, LabelLogits, Prompt, PromptError, TextGenerator
from app.service.judging import label_gap, score_of_orders
from app.service.prompts import PromptTemplate

# SCOPE, appendix on baselines: five samples at a temperature of 0.7.
SAMPLES, TEMPERATURE = 5, 0.7
# Pairs whose answers are written together, and how many such chunks the engine has at a time:
# enough to keep it busy, little to lose when killed.
CHUNK_PAIRS = 64
_CHUNKS_IN_FLIGHT = 4


Reply = LabelLogits | Generated | PromptError


class Writing(NamedTuple):
    """How text is asked for.

    Args:
        max_tokens: Where an answer is cut.
        temperature: 0 is greedy.
    """

    max_tokens: int
    temperature: float


# Observations that are not here ask for label logits. A verdict and a number fit; a judge that
# explains itself first is cut off, and counted.
_WRITING: Mapping[Observation, Writing] = {
    "verbalized": Writing(32, 0.0),
    "samples": Writing(16, TEMPERATURE),
}
# What the same question would come to again, as long as the judge's context is the same.
_FINAL_FAILURES = frozenset((PromptTooLongError.code, ControlTokenError.code))


class Question(NamedTuple):
    """One observation of one pair: the prompts that are its whole content.

    Args:
        prompts: Of one observation.
        seeds: One for each prompt.
        digest: Of everything that the answer depends on, but for the judge.
    """

    prompts: tuple[Prompt, ...]
    seeds: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Interviewer:
    """What is asked for each observation.

    Args:
        template: Of the judge's prompts.
        personas: Demonstrations of each simulated annotator; empty where none is asked.
        seed: Of the sampled answers.
    """

    template: PromptTemplate
    personas: tuple[tuple[LabelledPair, ...], ...]
    seed: int

    @classmethod
    def of(
        cls,
        template: PromptTemplate,
        demonstrations: Sequence[LabelledPair],
        observations: Iterable[Observation],
        seed: int,
    ) -> "Interviewer":
        """Draws the personas where annotators are asked for.

        Raises:
            InvalidRequestError: There are too few demonstrations.
        """
        asked = "annotators" in observations
        return cls(template, draw_personas(demonstrations, seed=seed) if asked else (), seed)

    def question(self, observation: Observation, pair: LabelledPair) -> Question:
        """The prompts for one observation of one pair."""
        prompts, comparison = [], pair.comparison
        if observation == "orders":
            prompts = list(self.template.both_orders(comparison))
        elif observation == "annotators":
            prompts = annotator_prompts(self.template, comparison, self.personas)
        elif observation == "verbalized":
            prompts = [verbalized_prompt(self.template, comparison)]
        else:
            prompts = [self.template.render(comparison)] * SAMPLES
        seeds = [0] * len(prompts)
        if observation == "samples":
            # The same whatever else is judged beside it, in this run or in one that goes on.
            start = int(_digest([self.seed, pair.id, prompts])[:7], 16)
            seeds = [start + i for i in range(len(prompts))]
        digest = _digest([prompts, seeds, _WRITING.get(observation)])
        return Question(tuple(prompts), tuple(seeds), digest)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("ascii")).hexdigest()[:16]


class Dataset(NamedTuple):
    """One data set's pairs with what is asked about them."""

    name: str
    pairs: Sequence[LabelledPair]
    interviewer: Interviewer


class Work(NamedTuple):
    """The pairs of a data set that one observation is still missing of."""

    dataset: Dataset
    observation: Observation
    pairs: Sequence[LabelledPair]


def unanswered(
    datasets: Iterable[Dataset],
    observations: Sequence[Observation],
    known: Mapping[tuple[str, str], JudgedPair],
    *,
    retry: bool = False,
) -> list[Work]:
    """What is to be asked: all that the file has no answer to, or one to another question.

    Args:
        datasets: With the pairs to judge.
        observations: What is asked for.
        known: From the log.
        retry: Ask again also where the same failure must be expected, as for a prompt that is too
            long: with a longer context, say.
    """
    return [
        Work(
            dataset,
            observation,
            [
                pair
                for pair in dataset.pairs
                if not _is_answered(
                    known.get((dataset.name, pair.id)), dataset, observation, pair, retry=retry
                )
            ],
        )
        for dataset in datasets
        for observation in observations
    ]


def _is_answered(
    known: JudgedPair | None,
    dataset: Dataset,
    observation: Observation,
    pair: LabelledPair,
    *,
    retry: bool,
) -> bool:
    if known is None:
        return False
    failure = (known.failed or {}).get(observation)
    if failure is not None and (retry or failure not in _FINAL_FAILURES):
        return False
    answered = (known.asked or {}).get(observation)
    return answered == dataset.interviewer.question(observation, pair).digest


def corrected(
    datasets: Iterable[Dataset], known: Mapping[tuple[str, str], JudgedPair]
) -> list[JudgedPair]:
    """Lines for pairs whose label or group the data say otherwise by now; no answer changes."""
    found = []
    for dataset in datasets:
        for pair in dataset.pairs:
            line = known.get((dataset.name, pair.id))
            if line is not None and (line.label, line.group) != (pair.label, pair.group):
                empty = replace(line.only(()), asked={})
                found.append(replace(empty, label=pair.label, group=pair.group))
    return found


@dataclass(frozen=True, slots=True)
class Respondent:
    """A started judge, and who it is.

    Args:
        engine: Label logits for all observations; text for those that need it.
        name: The judge's name.
        fingerprint: The judge's.
    """

    engine: Engine
    name: str
    fingerprint: str

    def check(self, known: Iterable[JudgedPair], observations: Iterable[Observation]) -> None:
        """Refuses what would mix judges, and what this engine cannot do.

        Raises:
            InvalidRequestError: The file holds another judge's answers, or the engine writes no
                text.
        """
        for pair in known:
            if pair.fingerprint != self.fingerprint:
                raise InvalidRequestError(
                    f"the judgments there were made by {self.name} with other weights, dtype or "
                    "prompt than it has now: give another --out"
                )
        for observation in observations:
            if observation in _WRITING and not isinstance(self.engine, TextGenerator):
                raise InvalidRequestError(f"this engine writes no text, and {observation} needs it")

    async def ask(
        self,
        work: Iterable[Work],
        log: JudgmentLog,
        on_answered: Callable[[Work, int], None],
    ) -> None:
        """Asks everything, several chunks at a time, and appends every answer to the log.

        Args:
            work: From `unanswered`.
            log: Open.
            on_answered: Is told of how many pairs more.

        Raises:
            UnavailableError: The judge does not answer; what was answered is in the log.
            InvalidRequestError: The log cannot be written.
        """
        permits = asyncio.Semaphore(_CHUNKS_IN_FLIGHT)

        async def answered(one: Work, pairs: Sequence[LabelledPair]) -> None:
            try:
                log.append(await self._judged(one, pairs))
                on_answered(one, len(pairs))
            finally:
                permits.release()

        try:
            async with asyncio.TaskGroup() as group:
                for one in work:
                    for start in range(0, len(one.pairs), CHUNK_PAIRS):
                        await permits.acquire()
                        some = one.pairs[start : start + CHUNK_PAIRS]
                        group.create_task(answered(one, some))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _judged(self, work: Work, pairs: Sequence[LabelledPair]) -> list[JudgedPair]:
        questions = [work.dataset.interviewer.question(work.observation, pair) for pair in pairs]
        replies = iter(await self._replies(work.observation, questions))
        judged = []
        for pair, question in zip(pairs, questions, strict=True):
            answer = _answer(work.observation, question, [next(replies) for _ in question.prompts])
            if isinstance(answer, ScopeJudgeError):
                answer = {"failed": {work.observation: answer.code}}
            judged.append(
                JudgedPair(
                    work.dataset.name,
                    pair.id,
                    pair.group,
                    pair.label,
                    swapped=pair.swapped,
                    text=pair.text_digest,
                    judge=self.name,
                    fingerprint=self.fingerprint,
                    asked={work.observation: question.digest},
                    **answer,
                )
            )
        return judged

    async def _replies(
        self, observation: Observation, questions: Sequence[Question]
    ) -> Sequence[Reply]:
        """One reply for each prompt, all of them in one engine call."""
        prompts = [prompt for question in questions for prompt in question.prompts]
        replies: Sequence[Reply]
        writing = _WRITING.get(observation)
        if writing is None:
            replies = await self.engine.label_logits(prompts)
        else:
            assert isinstance(self.engine, TextGenerator)
            replies = await self.engine.generate(
                prompts,
                max_tokens=writing.max_tokens,
                temperature=writing.temperature,
                seeds=[seed for question in questions for seed in question.seeds],
            )
        if len(replies) != len(prompts):
            raise JudgmentFailedError(
                f"the engine answered {len(replies)} of {len(prompts)} prompts"
            )
        return replies


def _answer(
    observation: Observation, question: Question, replies: Sequence[Reply]
) -> dict[str, Any] | ScopeJudgeError:
    """One failed reply fails the whole observation: a vote of four is no vote of five."""
    for reply in replies:
        if isinstance(reply, ScopeJudgeError):
            return reply
    logits = [reply for reply in replies if isinstance(reply, LabelLogits)]
    if observation == "orders":
        score = score_of_orders(*logits)
        if isinstance(score, ScopeJudgeError):
            return score
        return {"gaps": (score.gap_fwd, score.gap_rev), "label_mass": score.label_mass}
    if observation == "annotators":
        gaps = [label_gap(each) for each in logits]
        return next(
            (gap for gap in gaps if isinstance(gap, ScopeJudgeError)), {"annotators": tuple(gaps)}
        )
    texts = tuple(
        # With the prefill, for readers of the file: "[[" begins the verdict.
        Generated(prompt.prefill + reply.text, reply.complete)
        for prompt, reply in zip(question.prompts, replies, strict=True)
        if isinstance(reply, Generated)
    )
    return {"samples": texts} if observation == "samples" else {"verbalized": texts[0]}
