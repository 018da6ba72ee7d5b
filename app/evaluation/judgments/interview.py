"""Asking a judge the questions that judgments.jsonl has no answers to."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.core.errors import (
    ControlTokenError,
    InvalidComparisonError,
    InvalidRequestError,
    JudgmentFailedError,
    PromptTooLongError,
    ScopeJudgeError,
)
from app.core.fingerprint import INPUTS_DIFFER
from app.core.score import NoScore, Score
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.log import JudgmentLog
from app.evaluation.judgments.questions import GENERATION, Question, Questionnaire
from app.evaluation.judgments.record import JudgedPair, Observation
from app.judges.label_logits import LabelLogitScorer, label_gap
from app.judges.scorer import ScoreOutcome, Scorer
from app.ports import Engine, Generated, LabelLogits, PromptError, Sampling, TextGenerator

# The answers of a chunk are saved together. This many pairs in flight keep a GPU busy.
CHUNK_PAIRS, CHUNKS_IN_FLIGHT = 16, 8
# Failures that an equal question repeats.
_FINAL_FAILURES = frozenset(
    (PromptTooLongError.code, ControlTokenError.code, InvalidComparisonError.code)
)

Reply = LabelLogits | Generated | PromptError


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """The pairs of a data set, and the questions about them."""

    name: str
    pairs: Sequence[LabeledPair]
    questionnaire: Questionnaire


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingAnswers:
    """The pairs of a data set that still lack one observation."""

    dataset: Dataset
    observation: Observation
    pairs: Sequence[LabeledPair]


def missing_answers(
    datasets: Iterable[Dataset],
    observations: Sequence[Observation],
    known: Mapping[tuple[str, str], JudgedPair],
) -> list[MissingAnswers]:
    """The questions to ask: those without an answer in the log, or with one to another question.

    Args:
        datasets: Data sets with the pairs to judge.
        observations: Observations that the methods need.
        known: Content of the log.
    """
    return [
        MissingAnswers(
            dataset=dataset,
            observation=observation,
            pairs=[
                pair
                for pair in dataset.pairs
                if not _is_answered(known.get((dataset.name, pair.id)), dataset, observation, pair)
            ],
        )
        for dataset in datasets
        for observation in observations
    ]


def _is_answered(
    known: JudgedPair | None, dataset: Dataset, observation: Observation, pair: LabeledPair
) -> bool:
    if known is None:
        return False
    failure = (known.failed or {}).get(observation)
    if failure is not None and failure not in _FINAL_FAILURES:
        return False
    question = dataset.questionnaire.question(observation, pair)
    return (known.asked or {}).get(observation) == question.digest


def relabeled(
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
        scorer: The judge. A chat model also answers questions in words.
    """

    scorer: Scorer

    @property
    def _engine(self) -> Engine:
        """The engine of a chat model, which alone is asked in words."""
        assert isinstance(self.scorer, LabelLogitScorer), "only a chat model answers in words"
        return self.scorer.engine

    def check(self, known: Iterable[JudgedPair], observations: Iterable[Observation]) -> None:
        """Checks that the log is of this judge, and that its engine can answer.

        Raises:
            InvalidRequestError: The log holds another judge's answers, or an observation needs text
                and the engine writes none.
        """
        judge = self.scorer.identity
        for pair in known:
            if pair.fingerprint != judge.fingerprint:
                raise InvalidRequestError(
                    f"the judgments there were made by another judge called {judge.name} "
                    f"({INPUTS_DIFFER}): give another --out"
                )
        for observation in observations:
            if observation in GENERATION and not isinstance(self._engine, TextGenerator):
                raise InvalidRequestError(f"this engine writes no text, and {observation} needs it")

    async def ask(
        self,
        missing: Iterable[MissingAnswers],
        log: JudgmentLog,
        on_answered: Callable[[MissingAnswers, int], None],
    ) -> None:
        """Asks all missing questions, several chunks at a time, and logs the answers.

        Args:
            missing: Result of `missing_answers`.
            log: An open log.
            on_answered: Receives the number of pairs of each finished chunk.

        Raises:
            UnavailableError: The judge does not answer; the log has all earlier answers.
            InvalidRequestError: The log cannot be written.
        """
        permits = asyncio.Semaphore(CHUNKS_IN_FLIGHT)

        async def ask_chunk(one: MissingAnswers, chunk: Sequence[LabeledPair]) -> None:
            try:
                log.append(await self._judged(one.dataset, one.observation, chunk))
                on_answered(one, len(chunk))
            finally:
                permits.release()

        try:
            async with asyncio.TaskGroup() as group:
                for one in missing:
                    for start in range(0, len(one.pairs), CHUNK_PAIRS):
                        await permits.acquire()
                        chunk = one.pairs[start : start + CHUNK_PAIRS]
                        group.create_task(ask_chunk(one, chunk))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _judged(
        self, dataset: Dataset, observation: Observation, pairs: Sequence[LabeledPair]
    ) -> list[JudgedPair]:
        questions = [dataset.questionnaire.question(observation, pair) for pair in pairs]
        unanswered = [
            JudgedPair(
                dataset=dataset.name,
                id=pair.id,
                group=pair.group,
                label=pair.label,
                swapped=pair.swapped,
                text=pair.text_digest,
                judge=self.scorer.identity.name,
                fingerprint=self.scorer.identity.fingerprint,
                asked={observation: question.digest},
            )
            for pair, question in zip(pairs, questions, strict=True)
        ]
        if observation == "orders":
            scores = await self.scorer.score([pair.comparison for pair in pairs])
            return [
                _with_score(pair, score) for pair, score in zip(unanswered, scores, strict=True)
            ]
        replies = iter(await self._replies(observation, questions))
        return [
            _with_answer(pair, observation, question, [next(replies) for _ in question.prompts])
            for pair, question in zip(unanswered, questions, strict=True)
        ]

    async def _replies(
        self, observation: Observation, questions: Sequence[Question]
    ) -> Sequence[Reply]:
        """One reply for each prompt, from a single engine call."""
        prompts = [prompt for question in questions for prompt in question.prompts]
        replies: Sequence[Reply]
        limits = GENERATION.get(observation)
        if limits is None:
            replies = await self._engine.label_logits(prompts)
        else:
            engine = self._engine
            assert isinstance(engine, TextGenerator)
            replies = await engine.generate(
                prompts,
                Sampling(
                    max_tokens=limits.max_tokens,
                    temperature=limits.temperature,
                    seeds=[seed for question in questions for seed in question.seeds],
                ),
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


def _with_score(pair: JudgedPair, score: ScoreOutcome) -> JudgedPair:
    if isinstance(score, NoScore):
        return replace(pair, failed={"orders": score.reason})
    if not isinstance(score, Score):
        return replace(pair, failed={"orders": score.code})
    judged = replace(pair, gaps=score.gaps, label_mass=score.label_mass)
    return replace(judged, orders=1) if score.orders == 1 else judged


def _with_annotators(pair: JudgedPair, logits: Sequence[LabelLogits]) -> JudgedPair:
    gaps = []
    for label_logits in logits:
        gap = label_gap(label_logits)
        if isinstance(gap, ScopeJudgeError):
            return replace(pair, failed={"annotators": gap.code})
        gaps.append(gap)
    return replace(pair, annotators=tuple(gaps))
