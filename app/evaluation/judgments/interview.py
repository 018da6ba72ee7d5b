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
from app.core.preference import NoScore, Score
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.jsonl import JudgmentLog
from app.evaluation.judgments.questions import GENERATION, Dataset, Question
from app.evaluation.judgments.record import JudgedPair, Observation
from app.judges.label_logits import LabelLogitScorer, label_gap
from app.judges.scorer import ScoreOutcome, Scorer
from app.ports import Engine, Generated, LabelLogits, PromptError, Sampling

# The answers of a chunk are saved together. This many pairs in flight keep a GPU busy.
CHUNK_PAIRS, CHUNKS_IN_FLIGHT = 16, 8
# Failures that an equal question repeats.
_FINAL_FAILURES = frozenset(
    (PromptTooLongError.code, ControlTokenError.code, InvalidComparisonError.code)
)

Reply = LabelLogits | Generated | PromptError


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

    A pair whose label or group has changed in the data is asked again, which corrects the log.
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
    if known is None or (known.label, known.group) != (pair.label, pair.group):
        return False
    failure = (known.failed or {}).get(observation)
    if failure is not None and failure not in _FINAL_FAILURES:
        return False
    return (known.asked or {}).get(observation) == dataset.question(observation, pair).digest


def check_judge(scorer: Scorer, known: Iterable[JudgedPair]) -> None:
    """Raises InvalidRequestError if the log holds another judge's answers."""
    judge = scorer.identity
    for pair in known:
        if pair.fingerprint != judge.fingerprint:
            raise InvalidRequestError(
                f"the judgments there were made by another judge called {judge.name} "
                f"({INPUTS_DIFFER}): give another --out"
            )


async def ask(
    scorer: Scorer,
    missing: Iterable[MissingAnswers],
    log: JudgmentLog,
    on_answered: Callable[[MissingAnswers, int], None],
) -> None:
    """Asks a started judge all missing questions, several chunks at a time, and logs the answers.

    Args:
        on_answered: Receives the number of pairs of each finished chunk.

    Raises:
        UnavailableError: The judge does not answer; the log has all earlier answers.
        InvalidRequestError: The log cannot be written.
    """
    permits = asyncio.Semaphore(CHUNKS_IN_FLIGHT)

    async def ask_chunk(one: MissingAnswers, chunk: Sequence[LabeledPair]) -> None:
        try:
            log.append(await _judged(scorer, one.dataset, one.observation, chunk))
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


def _engine(scorer: Scorer) -> Engine:
    assert isinstance(scorer, LabelLogitScorer), "only a chat model answers in words"
    return scorer.engine


async def _judged(
    scorer: Scorer, dataset: Dataset, observation: Observation, pairs: Sequence[LabeledPair]
) -> list[JudgedPair]:
    questions = [dataset.question(observation, pair) for pair in pairs]
    unanswered = [
        JudgedPair(
            dataset=dataset.name,
            id=pair.id,
            group=pair.group,
            label=pair.label,
            swapped=pair.swapped,
            text=pair.text_digest,
            judge=scorer.identity.name,
            fingerprint=scorer.identity.fingerprint,
            asked={observation: question.digest},
        )
        for pair, question in zip(pairs, questions, strict=True)
    ]
    if observation == "orders":
        scores = await scorer.score([pair.comparison for pair in pairs])
        return [_with_score(pair, score) for pair, score in zip(unanswered, scores, strict=True)]
    replies = iter(await _replies(_engine(scorer), observation, questions))
    return [
        _with_answer(pair, observation, question, [next(replies) for _ in question.prompts])
        for pair, question in zip(unanswered, questions, strict=True)
    ]


async def _replies(
    engine: Engine, observation: Observation, questions: Sequence[Question]
) -> Sequence[Reply]:
    """One reply for each prompt, from a single engine call."""
    prompts = [prompt for question in questions for prompt in question.prompts]
    replies: Sequence[Reply]
    if observation in GENERATION:
        max_tokens, temperature = GENERATION[observation]
        seeds = [seed for question in questions for seed in question.seeds]
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature, seeds=seeds)
        replies = await engine.generate(prompts, sampling)
    else:
        replies = await engine.label_logits(prompts)
    if len(replies) != len(prompts):
        raise JudgmentFailedError(f"the engine answered {len(replies)} of {len(prompts)} prompts")
    return replies


def _with_answer(
    pair: JudgedPair, observation: Observation, question: Question, replies: Sequence[Reply]
) -> JudgedPair:
    """The pair with its answer, or with a failure if one of the replies failed.

    One failed reply fails the whole observation: four votes are not a vote of five.
    """
    answers = [label_gap(each) if isinstance(each, LabelLogits) else each for each in replies]
    for answer in answers:
        if isinstance(answer, ScopeJudgeError):
            return replace(pair, failed={observation: answer.code})
    if observation == "annotators":
        return replace(pair, annotators=tuple(gap for gap in answers if isinstance(gap, float)))
    texts = tuple(
        # The prefill is part of the answer: in the critic's prompt it begins the verdict.
        Generated(prompt.prefill + reply.text, reply.complete)
        for prompt, reply in zip(question.prompts, answers, strict=True)
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
