"""Asking a judge the questions that judgments.jsonl has no answers to."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.errors import (
    ControlTokenError,
    InvalidRequestError,
    JudgmentFailedError,
    PromptTooLongError,
    ScopeJudgeError,
)
from app.evaluation.benchmarks.labelled_pairs import LabelledPair
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.pace import ChunkPace
from app.evaluation.judgments.questions import GENERATION, Question, Questionnaire
from app.evaluation.judgments.record import JudgedPair, Observation
from app.ports import Engine, Generated, LabelLogits, PromptError, TextGenerator
from app.service.scoring.label_logits import label_gap, score_of_orders

# Four chunks in flight keep the engine busy.
_CHUNKS_IN_FLIGHT = 4
# Failures that an equal question repeats.
_FINAL_FAILURES = frozenset((PromptTooLongError.code, ControlTokenError.code))

Reply = LabelLogits | Generated | PromptError


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """The pairs of a data set, and the questions about them."""

    name: str
    pairs: Sequence[LabelledPair]
    questionnaire: Questionnaire


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingAnswers:
    """The pairs of a data set that still lack one observation."""

    dataset: Dataset
    observation: Observation
    pairs: Sequence[LabelledPair]


def missing_answers(
    datasets: Iterable[Dataset],
    observations: Sequence[Observation],
    known: Mapping[tuple[str, str], JudgedPair],
    *,
    retry: bool = False,
) -> list[MissingAnswers]:
    """The questions to ask: those without an answer in the log, or with one to another question.

    Args:
        datasets: Data sets with the pairs to judge.
        observations: Observations that the methods need.
        known: Content of the log.
        retry: Also ask again after a failure that normally repeats, such as a prompt that is too
            long. The judge may have a longer context now.
    """
    return [
        MissingAnswers(
            dataset=dataset,
            observation=observation,
            pairs=[
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
    question = dataset.questionnaire.question(observation, pair)
    return (known.asked or {}).get(observation) == question.digest


def relabelled(
    datasets: Iterable[Dataset], known: Mapping[tuple[str, str], JudgedPair]
) -> list[JudgedPair]:
    """Lines with the new label and group of pairs whose label or group changed in the data."""
    lines = []
    for dataset in datasets:
        for pair in dataset.pairs:
            line = known.get((dataset.name, pair.id))
            if line is not None and (line.label, line.group) != (pair.label, pair.group):
                # `asked` marks a line of `evaluate`; an empty one changes no answer.
                without_answers = replace(line.only(()), asked={})
                lines.append(replace(without_answers, label=pair.label, group=pair.group))
    return lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Interviewer:
    """Asks one started judge.

    Args:
        engine: Gives label logits; also writes text if an observation needs it.
        judge: Name of the judge.
        fingerprint: Fingerprint of the judge.
    """

    engine: Engine
    judge: str
    fingerprint: str

    def check(self, known: Iterable[JudgedPair], observations: Iterable[Observation]) -> None:
        """Checks that the log is of this judge, and that the engine can answer.

        Raises:
            InvalidRequestError: The log holds another judge's answers, or an observation needs text
                and the engine writes none.
        """
        for pair in known:
            if pair.fingerprint != self.fingerprint:
                raise InvalidRequestError(
                    f"the judgments there were made by {self.judge} with other weights, dtype or "
                    "prompt than it has now: give another --out"
                )
        for observation in observations:
            if observation in GENERATION and not isinstance(self.engine, TextGenerator):
                raise InvalidRequestError(f"this engine writes no text, and {observation} needs it")

    async def ask(
        self,
        missing: Iterable[MissingAnswers],
        log: JudgmentLog,
        on_answered: Callable[[MissingAnswers, int], None],
    ) -> None:
        """Asks all missing questions, several chunks at a time, and appends the answers to the log.

        Args:
            missing: Result of `missing_answers`.
            log: An open log.
            on_answered: Receives the number of pairs of each finished chunk.

        Raises:
            UnavailableError: The judge does not answer; the log has all earlier answers.
            InvalidRequestError: The log cannot be written.
        """
        permits = asyncio.Semaphore(_CHUNKS_IN_FLIGHT)

        async def ask_chunk(
            one: MissingAnswers, chunk: Sequence[LabelledPair], pace: ChunkPace
        ) -> None:
            begun = time.monotonic()
            try:
                log.append(await self._judged(one.dataset, one.observation, chunk))
                pace.note(len(chunk), time.monotonic() - begun)
                on_answered(one, len(chunk))
            finally:
                permits.release()

        try:
            async with asyncio.TaskGroup() as group:
                for one in missing:
                    # A text takes longer than a label, so each observation has its own pace.
                    pace, start = ChunkPace(), 0
                    while start < len(one.pairs):
                        await permits.acquire()
                        chunk = one.pairs[start : start + pace.pairs]
                        start += len(chunk)
                        group.create_task(ask_chunk(one, chunk, pace))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _judged(
        self, dataset: Dataset, observation: Observation, pairs: Sequence[LabelledPair]
    ) -> list[JudgedPair]:
        questions = [dataset.questionnaire.question(observation, pair) for pair in pairs]
        replies = iter(await self._replies(observation, questions))
        judged = []
        for pair, question in zip(pairs, questions, strict=True):
            unanswered = JudgedPair(
                dataset=dataset.name,
                id=pair.id,
                group=pair.group,
                label=pair.label,
                swapped=pair.swapped,
                text=pair.text_digest,
                judge=self.judge,
                fingerprint=self.fingerprint,
                asked={observation: question.digest},
            )
            of_pair = [next(replies) for _ in question.prompts]
            judged.append(_with_answer(unanswered, observation, question, of_pair))
        return judged

    async def _replies(
        self, observation: Observation, questions: Sequence[Question]
    ) -> Sequence[Reply]:
        """One reply for each prompt, from a single engine call."""
        prompts = [prompt for question in questions for prompt in question.prompts]
        replies: Sequence[Reply]
        limits = GENERATION.get(observation)
        if limits is None:
            replies = await self.engine.label_logits(prompts)
        else:
            assert isinstance(self.engine, TextGenerator)
            replies = await self.engine.generate(
                prompts,
                max_tokens=limits.max_tokens,
                temperature=limits.temperature,
                seeds=[seed for question in questions for seed in question.seeds],
            )
        if len(replies) != len(prompts):
            raise JudgmentFailedError(
                f"the engine answered {len(replies)} of {len(prompts)} prompts"
            )
        return replies


def _with_answer(
    pair: JudgedPair, observation: Observation, question: Question, replies: Sequence[Reply]
) -> JudgedPair:
    """The pair with its answer, or with a failure if one of the replies failed.

    One failed reply fails the whole observation: four votes are not a vote of five.
    """
    for reply in replies:
        if isinstance(reply, ScopeJudgeError):
            return replace(pair, failed={observation: reply.code})
    if observation == "orders":
        return _with_orders(pair, [r for r in replies if isinstance(r, LabelLogits)])
    if observation == "annotators":
        return _with_annotators(pair, [r for r in replies if isinstance(r, LabelLogits)])
    texts = tuple(
        # The prefill is part of the answer: in the critic's prompt it begins the verdict.
        Generated(prompt.prefill + reply.text, reply.complete)
        for prompt, reply in zip(question.prompts, replies, strict=True)
        if isinstance(reply, Generated)
    )
    if observation == "samples":
        return replace(pair, samples=texts)
    return replace(pair, verbalized=texts[0])


def _with_orders(pair: JudgedPair, logits: Sequence[LabelLogits]) -> JudgedPair:
    score = score_of_orders(*logits)
    if isinstance(score, ScopeJudgeError):
        return replace(pair, failed={"orders": score.code})
    return replace(pair, gaps=score.gaps, label_mass=score.label_mass)


def _with_annotators(pair: JudgedPair, logits: Sequence[LabelLogits]) -> JudgedPair:
    gaps = []
    for label_logits in logits:
        gap = label_gap(label_logits)
        if isinstance(gap, ScopeJudgeError):
            return replace(pair, failed={"annotators": gap.code})
        gaps.append(gap)
    return replace(pair, annotators=tuple(gaps))
