"""Protocols of the engines that score prompts and of the stores that keep sets and audits.

A new engine or store is one file that meets one of these protocols; CONTRIBUTING.md says where it
gets its name and its settings.
"""

import math
import time
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from app.core.comparison import Turn
from app.core.errors import JudgmentFailedError, RequestError
from app.core.fingerprint import JudgeIdentity


class Prompt(NamedTuple):
    """One order of one comparison, before the chat template of the judge is applied.

    Args:
        question: The question as it stands in the prompt. An engine with several copies of the
            model reads all prompts of a question on one of them, which then has it in its cache.
    """

    system: str
    user: str
    prefill: str
    question: str = ""


# Errors of one prompt that do not affect the other prompts of its batch.
PromptError = RequestError | JudgmentFailedError


class LabelLogits(NamedTuple):
    """Log-probabilities of the two labels as first token of the answer.

    They are normalized over the whole vocabulary; their difference is that of the logits.
    """

    a: float
    b: float

    @property
    def label_mass(self) -> float:
        """Probability of the two labels together, out of the whole vocabulary, in [0, 1]."""
        return min(1.0, math.exp(self.a) + math.exp(self.b))


class Generated(NamedTuple):
    """Text that a judge wrote.

    Args:
        text: The text without the prefill.
        complete: True if the judge ended the text itself; False if the token limit cut the text.
        thought: The thought before the text, where a server keeps the two apart.
    """

    text: str
    complete: bool
    thought: str = ""


class Thought(NamedTuple):
    """A thought that a judge wrote, and its labels behind it.

    Args:
        labels: The labels' log-probabilities behind the thought and its end; None if the thought
            did not end.
    """

    text: str
    labels: LabelLogits | None


# Whether a call goes ahead of an engine's queue, as a probe does.
_AHEAD: ContextVar[bool] = ContextVar("ahead", default=False)


@contextmanager
def ahead_of_queue() -> Iterator[None]:
    """Puts the engine calls of the block ahead of all calls that wait."""
    before = _AHEAD.set(True)
    try:
        yield
    finally:
        _AHEAD.reset(before)


def is_ahead() -> bool:
    """Whether the current call goes ahead of the queue."""
    return _AHEAD.get()


class CallTimes:
    """Measures where the time of one engine call is spent, and how many tokens it reads.

    The caller of an engine makes one instance and passes it on; the engine writes into it. Time
    that the engine does not report counts as time of the model. `prompt_tokens` counts the tokens
    of all prompts that the model reads, also from its cache; it stays 0 if the engine has none.
    `written_tokens` counts the tokens of answers in words in the same way.
    """

    def __init__(self) -> None:
        self.render_s = 0.0
        self.prompt_tokens = 0
        self.written_tokens = 0
        self._shortest_wait_s = math.inf
        self.on_answer: Callable[[], None] = lambda: None

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """Adds the duration of its block to `render_s`, the time to turn prompts into tokens."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.render_s += time.perf_counter() - begun

    def note_answer(self) -> None:
        """Notes that the model has answered a part of the call: a sign of life."""
        self.on_answer()

    def note_wait(self, seconds: float) -> None:
        """Notes how many seconds one or more prompts of the call waited for the model."""
        self._shortest_wait_s = min(self._shortest_wait_s, max(0.0, seconds))

    @property
    def queue_s(self) -> float:
        """Seconds until the model began with the call: the shortest wait of its prompts."""
        return self._shortest_wait_s if self._shortest_wait_s < math.inf else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineIdentity:
    """The part of a judge's identity that an engine knows after its start.

    Args:
        head_dtype: Dtype in which the model computes logits; None if the engine does not know it.
        runtime: Software and processor that compute the scores, and so decide how they are rounded;
            None if the engine does not know it.
        unusual: Inputs of the scores that most judges do not have, by their names.
        left_out: Parameters of sampled answers that the engine refuses, or that have no effect.
        think_end: Text between the thought of a judge and its prefill; None if the engine cannot
            continue a thought.
    """

    judge: str
    weights: str
    chat_frame: str
    label_tokens: tuple[int, int]
    dtype: str
    max_prompt_tokens: int
    head_dtype: str | None = None
    runtime: str | None = None
    left_out: tuple[str, ...] = ()
    think_end: str | None = None
    unusual: Mapping[str, object] = field(default_factory=dict)


OnStage = Callable[[str], None]


def no_stage(text: str) -> None:
    """Ignores the stages of a start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How an engine writes its answers to prompts.

    Args:
        max_tokens: Largest number of tokens of an answer, at least 1.
        temperature: Sampling temperature; 0 is greedy and ignores the seeds.
        seeds: One seed for each prompt, in [0, 2^63). The same prompt, temperature and seed give
            the same text, unless another batch size changes the rounding so that the logits of two
            tokens change their order.
        n: Number of answers to each prompt. Answer i has the prompt's seed + i.
    """

    max_tokens: int
    temperature: float
    seeds: Sequence[int]
    n: int = 1


class Engine(Protocol):
    """The model of a judge.

    Calls are scheduled fairly: a call with many prompts does not block a call with few prompts
    until it ends. Adapters translate the exceptions of their vendor: `EngineUnavailableError` if
    the engine does not answer, `OverloadedError` if its queue is full, `StartupError` if the engine
    cannot serve at all.
    """

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        """Loads the model, finds the label tokens at the position of the answer, and warms up.

        Args:
            prompt: Any prompt of the template that will be used. The label tokens depend on its
                prefill.
            on_stage: Called with the name of each stage that takes seconds, when it begins.

        Raises:
            StartupError: The model cannot be a judge as configured; the message says why.
        """

    async def stop(self) -> None:
        """Frees all resources; safe to call twice or without `start`."""

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Scores all prompts in one batched call.

        Cancelling the call aborts the engine's work.

        Args:
            times: Receives the times of the call; None if the caller does not need them.

        Returns:
            For each prompt, in order, its label logits or its own error: `PromptTooLongError`,
            `ControlTokenError`, or `JudgmentFailedError` if the answer of the engine has no label
            logits. The error of one prompt does not affect the others.

        Raises:
            UnavailableError: No prompt was scored.
        """

    async def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Generated | PromptError]:
        """Answers all prompts in one batched call; each answer continues the prefill.

        Cancelling the call aborts the engine's work.

        Args:
            sampling: Length, temperature, seeds and number of the answers.
            times: Receives the times of the call; None if the caller does not need them.

        Returns:
            For each prompt, in order, its n answers, or n times its own error: `ControlTokenError`,
            `JudgmentFailedError`, or `PromptTooLongError` if the prompt and `max_tokens` do not fit
            into the context together. Neither the prompt nor the answer is shortened for that.

        Raises:
            UnavailableError: No prompt was answered.
        """

    async def think(
        self, prompts: Sequence[Prompt], sampling: Sampling, times: CallTimes | None = None
    ) -> list[Thought | PromptError]:
        """Has the judge think about all prompts, and reads its labels behind each thought.

        The label is read at one place, behind the end of the thought that the judge itself wrote,
        whatever the texts and the thought contain. The arguments and errors are those of
        `generate`; `max_tokens` is the largest number of tokens of a thought with its end. An
        engine whose identity has no `think_end` cannot think.

        Returns:
            For each prompt, in order, its n thoughts, or n times its own error.
        """


@runtime_checkable
class RecomputingEngine(Protocol):
    """An engine with a cache that it can leave out; the check of the noise compares both."""

    async def recomputed_label_logits(
        self, prompts: Sequence[Prompt]
    ) -> list[LabelLogits | PromptError]:
        """Scores all prompts as `label_logits` does, without reading its cache."""


@runtime_checkable
class FailStop(Protocol):
    """An engine or store whose failure is final: only a new process ends it. Others recover."""

    async def lost(self) -> str:
        """Waits until it can never answer again in this process, and returns the reason.

        Called between `start` and `stop`, or `open` and `close`.
        """


@runtime_checkable
class Reprompted(Protocol):
    """An engine that can take another template while its model stays loaded."""

    async def use_prompt(self, prompt: Prompt) -> EngineIdentity:
        """Finds the label tokens again, for the prefill of another template.

        Args:
            prompt: Any prompt of the template that will be used.

        Returns:
            The identity with these label tokens.

        Raises:
            StartupError: A label is not one token there; the engine stays as it was.
        """


# A question with one response as its last turn, as a reward model reads it.
Conversation = tuple[Turn, ...]


class RewardModel(Protocol):
    """A model that gives each response its own number; see `Engine` for its errors."""

    async def start(self, on_stage: OnStage = no_stage) -> JudgeIdentity:
        """Loads the model and scores one conversation; returns the identity of the judge.

        Raises:
            StartupError: The model cannot be a judge; the message says why.
        """

    async def stop(self) -> None:
        """Frees all resources; safe to call twice or without `start`."""

    async def rewards(
        self, conversations: Sequence[Conversation], times: CallTimes | None = None
    ) -> list[float | PromptError]:
        """Scores all conversations in one batched call, one pass for each.

        Cancelling the call aborts the work.

        Args:
            times: Receives the times of the call; None if the caller does not need them.

        Returns:
            For each conversation, in order, its reward or its own error. A reward may be any
            number: the caller checks that it is finite.

        Raises:
            UnavailableError: No conversation was scored.
        """


# The longest prompt in tokens of a judge that nobody limits. A judge that thinks has a little less.
ANY_LENGTH = 2**31
# Versions of a set that a store keeps; earlier ones are in its trail alone.
KEPT_VERSIONS = 20


class Head(NamedTuple):
    """The newest change of a set: a version, or its deletion.

    Args:
        write_id: Unique id of the write that made the version; empty for a deletion. The number
            alone is not unique: it comes again if a store is restored from a backup and written to
            afterwards.
        number: Number of the change, from 1; it grows with each change.
    """

    write_id: str
    number: int


class Entry(NamedTuple):
    """An entry of a set's trail. `sets.change` writes and reads the record."""

    head: Head
    record: str


class SetStore(Protocol):
    """Keeps calibration sets: versions, which are immutable values, and the trail of all changes.

    The store only appends to a trail. Trail and versions remain when a set is deleted, and go on
    when a new set takes the same name: no number is used twice.

    Adapters raise `StoreUnavailableError` if the store does not answer or refuses to write. The
    change was then made completely, will be made completely in a moment, or was not made at all;
    the caller must read the head again to find out. Adapters raise `StoreCorruptError` if the
    stored data was not written by this service.
    """

    async def open(self) -> None:
        """Connects, and makes missing files and tables."""

    async def close(self) -> None:
        """Frees all resources; safe to call twice or without `open`."""

    async def ping(self) -> None:
        """Returns if the store can be read now."""

    async def names(self, *, deleted: bool = False) -> list[str]:
        """Returns the names of all sets, sorted; with `deleted`, also of deleted ones."""

    async def head(self, name: str) -> Head | None:
        """Returns the newest change of a set, cheaply; None if there never was such a set."""

    async def read(self, name: str, number: int | None = None) -> bytes | None:
        """Returns the present or an earlier version of a set; None if it is not there."""

    async def write(
        self,
        name: str,
        head: Head,
        *,
        blob: bytes | None,
        thresholds: Mapping[str, str],
        record: str,
        expected: Head | None,
    ) -> bool:
        """Adds a version, replaces the thresholds and extends the trail, in one step.

        The write is durable when this method returns. The last `KEPT_VERSIONS` numbers are kept.

        Args:
            head: The new version, whose number is above the expected one.
            blob: The version, not empty; None deletes the set.
            thresholds: "guarantee:alpha" -> lambda_hat, for programs that read the store directly.
            record: The new entry of the trail.
            expected: The head that must be in place; None if there must never have been a set.

        Returns:
            False if another head is in place. Nothing was written then.
        """

    async def trail(self, name: str, *, before: int | None, limit: int) -> list[Entry]:
        """Returns the trail of a set, newest first.

        Args:
            before: Only changes with a number below this one, at least 1; None for all changes.
        """


class StoredRow(NamedTuple):
    """A row of a set's audits, with the position of its last change.

    `app.audits.entries` writes and reads the text, which is JSON.
    """

    key: str
    position: int
    text: str


def placed(rows: Sequence[StoredRow], *, after: int) -> list[StoredRow]:
    """Gives each row the first position at or after its own that is after all earlier ones."""
    moved = list[StoredRow]()
    for row in rows:
        after = max(after + 1, row.position)
        moved.append(row._replace(position=after))
    return moved


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsChange:
    """A change of a set's audits.

    Args:
        rows: New rows, and new states of others. They get positions by `placed`.
        expected: Key -> position that the row must have, of all rows that change or are removed.
            Rows that are not in it must be new.
        texts: Key of a row -> its texts, which replace others.
        forgotten: Keys whose texts are removed; unknown keys are ignored.
        removed: Keys of rows to remove with their texts, which takes one position.
        synced: Whether the change is on the disk when it was made. Otherwise it survives the end of
            every process, but perhaps not a power failure.
    """

    rows: Sequence[StoredRow] = ()
    expected: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    forgotten: Collection[str] = ()
    removed: Collection[str] = ()
    synced: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the rows that change or are removed."""
        return (*(row.key for row in self.rows), *self.removed)


class AuditState(NamedTuple):
    """The state of a set's audits: the position of their last change, and the number of rows."""

    position: int
    rows: int


class AuditStore(Protocol):
    """Keeps the audits of each set as rows, and the secret that draws them.

    Each row has the position of its last change; positions of a set grow. Beside a row there may be
    the texts of a drawn pair. Errors are those of `SetStore`.
    """

    async def secret(self) -> bytes:
        """Returns 32 random bytes, which the first call makes; the same for every replica."""

    async def put_secret(self, secret: bytes) -> None:
        """Replaces the secret, for a restore into a store without audits."""

    async def audit_states(self) -> dict[str, AuditState]:
        """Returns the state of each set that has or had audits, cheaply."""

    async def audits(self, name: str, *, after: int, limit: int) -> list[StoredRow]:
        """Returns rows whose last change lies after a position, in the order of these changes."""

    async def write_audits(self, name: str, change: RowsChange) -> int | None:
        """Changes the audits of a set in one atomic step.

        Returns:
            The position of the set's last change before this one; None if a row has another
            position than expected. Nothing was written then.
        """

    async def audit_texts(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        """Returns the texts of rows by their keys, without those that it does not keep."""


class ScoreStore(Protocol):
    """Keeps what may be lost: scores in numbered slots for a while, and what callers owe.

    Errors are those of `SetStore`.
    """

    async def charge(self, caller: str, cost_s: float, *, most_owed_s: float) -> float | None:
        """Adds a cost to what a caller owes, which shrinks by a second each second.

        Args:
            most_owed_s: The cost is not added if the caller owes more than this.

        Returns:
            What the caller owed before; None if no other process uses the store, which counts
            nothing then.
        """

    async def kept_scores(self, slots: Collection[int]) -> dict[int, str]:
        """Returns the texts of slots, without empty and expired ones."""

    async def keep_scores(self, scores: Mapping[int, str], *, seconds: int) -> None:
        """Puts texts into slots for a time, instead of the earlier ones.

        They need not be on the disk when this method returns.
        """


class Store(SetStore, AuditStore, ScoreStore, Protocol):
    """One store that keeps calibration sets, audits and scores."""
