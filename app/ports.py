"""What the use cases need from outside: an engine that scores prompts, a store that keeps sets.

A new engine or store is one file that meets one of these protocols, and its line in `wiring`.
"""

import math
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

from app.core.errors import JudgmentFailedError, RequestError


class Prompt(NamedTuple):
    """One order of one comparison, before the judge's chat template."""

    system: str
    user: str
    prefill: str


# What can go wrong with one prompt and leave its neighbours alone.
PromptError = RequestError | JudgmentFailedError


class LabelLogits(NamedTuple):
    """The logits of the two label tokens at the first answered token.

    Args:
        a: Of "A", normalised over the whole vocabulary: its log-probability.
        b: Of "B", likewise.
    """

    a: float
    b: float

    @property
    def label_mass(self) -> float:
        """Share of the whole vocabulary's probability on the two labels, in [0, 1]."""
        return min(1.0, math.exp(self.a) + math.exp(self.b))


class Generated(NamedTuple):
    """Text that a judge wrote.

    Args:
        text: Without the prefill.
        complete: Whether the judge ended it itself; False where the token limit cut it.
    """

    text: str
    complete: bool


class CallTimes:
    """Where the time of one engine call goes.

    The caller of an engine makes one and passes it on; the engine writes into it. Time that the
    engine does not report counts as the model's.
    """

    def __init__(self) -> None:
        self.render_s = 0.0
        self._shortest_wait_s = math.inf

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """Measures the way from prompts to tokens."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.render_s += time.perf_counter() - begun

    def note_wait(self, seconds: float) -> None:
        """Notes how long a prompt of the call, or some of them, waited for the model."""
        self._shortest_wait_s = min(self._shortest_wait_s, max(0.0, seconds))

    @property
    def queue_s(self) -> float:
        """How long the model had not begun on the call yet."""
        return self._shortest_wait_s if self._shortest_wait_s < math.inf else 0.0


class EngineIdentity(NamedTuple):
    """What an engine adds to a judge's identity; known once it has started."""

    judge: str
    model: str
    weights: str
    chat_frame: str
    label_tokens: tuple[int, int]
    dtype: str
    max_prompt_tokens: int


class Engine(Protocol):
    """A judge's model.

    Calls take turns: one with many prompts does not hold up one with few for its whole length.
    Adapters translate their vendor's exceptions: `EngineUnavailableError` when the engine does not
    answer, `OverloadedError` when its queue is full, `StartupError` when it cannot serve at all.
    """

    async def start(self, prompt: Prompt) -> EngineIdentity:
        """Loads the model, finds the label tokens where the judge answers, and warms up.

        Args:
            prompt: Any prompt of the template that will be used; the prefill counts.

        Raises:
            StartupError: The model cannot be a judge as configured; the message says why.
        """

    async def stop(self) -> None:
        """Frees everything; safe to call twice or without `start`."""

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        """Scores all prompts in one batched call.

        Cancelling the call aborts the engine's work.

        Args:
            prompts: To be scored.
            times: Where the engine reports its times, if the caller wants them.

        Returns:
            For each prompt, in order, its label logits, or the error that is its own and not its
            neighbours': `PromptTooLongError`, `ControlTokenError`, or `JudgmentFailedError` where
            the engine answered without the label logits.

        Raises:
            UnavailableError: No prompt was scored.
        """


@runtime_checkable
class Mortal(Protocol):
    """An engine that may be gone for good while its process lives; others come back."""

    async def lost(self) -> str:
        """Waits until it can never answer again in this process, and says why.

        Called between `start` and `stop`.
        """


@runtime_checkable
class TextGenerator(Protocol):
    """A judge that also answers in words; only evaluation asks for them."""

    async def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int],
    ) -> list[Generated | PromptError]:
        """Answers all prompts in one batched call; the judge goes on where the prefill ends.

        Cancelling the call aborts the engine's work.

        Args:
            prompts: Any.
            max_tokens: Longest answer, at least 1.
            temperature: 0 is greedy and ignores the seeds.
            seeds: One for each prompt, in [0, 2^63): the same prompt, temperature and seed give the
                same text, except where a batch of another size rounds two tokens' logits into
                another order.

        Returns:
            For each prompt, in order, its answer, or the error that is its own and not its
            neighbours': `ControlTokenError`, `JudgmentFailedError`, or `PromptTooLongError` where
            prompt and longest answer do not fit the context together; neither is cut.

        Raises:
            UnavailableError: No prompt was answered.
            ValueError: There are more or fewer seeds than prompts.
        """


# The largest that JSON, JavaScript and Lua know exactly; a larger one was never counted up to.
LARGEST_NUMBER = 2**53 - 1


class Version(NamedTuple):
    """Which write of a set.

    Args:
        write_id: Of this very write. Numbers alone come again: after a deletion, and after a store
            was put back to an earlier state and went on from there.
        number: Grows by one with every write; from 1 to `LARGEST_NUMBER`.
    """

    write_id: str
    number: int


class Revision(NamedTuple):
    """One change of a set, for the trail; strings whose meaning `service.revisions` knows.

    Args:
        number: The version that the change makes; of a deletion, the next number.
        record: Who changed what and when: small, for people.
        undo: What takes the set back to what it was before; as large as the change.
    """

    number: int
    record: str
    undo: str


class Undo(NamedTuple):
    """How to take one change back.

    Args:
        number: Of the change.
        text: As it was written; empty where the store has lost it.
    """

    number: int
    text: str


class StoredCalibration(NamedTuple):
    """One calibration set as a store keeps it: strings whose meaning `service.codec` knows.

    Args:
        version: Of this state.
        meta: Field -> value; "write_id" and "version" are the store's own.
        examples: Digest -> labelled score.
        thresholds: "guarantee:alpha" -> lambda_hat, for programs that read the store themselves.
    """

    version: Version
    meta: Mapping[str, str]
    examples: Mapping[str, str]
    thresholds: Mapping[str, str]


class CalibrationStore(Protocol):
    """Keeps calibration sets and the trail of their changes; every change is one atomic step.

    A trail only grows, outlives its set, and goes on with the set that takes the name next: its
    numbers grow with every change and none comes twice. A set from before there were trails has
    none until it changes.

    Adapters raise `StoreUnavailableError` when the store does not answer or refuses to write, and
    nothing has changed then, or everything has, or will have in a moment: whoever goes on reads
    the version anew. They raise `StoreCorruptError` when what they find is not theirs.
    """

    async def open(self) -> None:
        """Connects, and makes what is missing.

        Raises:
            StoreUnavailableError: The store does not answer.
        """

    async def close(self) -> None:
        """Frees everything; safe to call twice or without `open`."""

    async def ping(self) -> None:
        """Returns if the store can be read now.

        Raises:
            StoreUnavailableError: It cannot.
        """

    async def names(self) -> list[str]:
        """The names of all sets, sorted; a deleted one's trail names none."""

    async def version(self, name: str) -> Version | None:
        """The version of a set, cheaply; None if there is none."""

    async def read(self, name: str) -> StoredCalibration | None:
        """One consistent state of a set; None if there is none."""

    async def write(
        self,
        name: str,
        state: StoredCalibration,
        *,
        revision: Revision,
        expected: Version | None,
        removed: Collection[str] = (),
    ) -> bool:
        """Replaces meta and thresholds, changes examples and extends the trail, in one step.

        Examples that the set has and neither `state.examples` nor `removed` names are kept.
        Durable on return.

        Args:
            name: Of the set.
            state: The new version; `examples` holds only those that are new or changed. Nothing in
                it may change any more, not even where the call is cancelled.
            revision: For the trail; its number is the state's, and at least 1.
            expected: The version that must be in place; None if there must be no set.
            removed: Digests of examples to remove; those that are not there do not matter.

        Returns:
            False if another version is in place, or the trail has this number or a later one:
            nothing was written.
        """

    async def delete(self, name: str, *, revision: Revision) -> bool:
        """Removes a set, readable or not, and extends the trail, in one step.

        Args:
            name: Of the set.
            revision: For the trail, with a number after `last_number`: whoever takes that before
                reading the set deletes what they have read.

        Returns:
            False if there is no set, or another change has come between: nothing was removed.
        """

    async def last_number(self, name: str) -> int:
        """The highest number of any change, or of the set that is there, cheaply; 0 if none."""

    async def revisions(self, name: str, *, before: int | None, limit: int) -> list[str]:
        """Records of the trail, newest first.

        Args:
            name: Of the set, which may have been deleted.
            before: Only changes with a lower number, at least 1; None for all.
            limit: At most so many, at least 1.
        """

    async def undos(self, name: str, *, before: int | None, limit: int) -> list[Undo]:
        """How to take changes back, newest first; arguments as of `revisions`."""


@runtime_checkable
class Announcing(Protocol):
    """A store that tells of changes by itself, also those that other processes make.

    It may miss some: readers ask for the version all the same.
    """

    def changes(self) -> AsyncGenerator[str | None]:
        """Names of sets, each as soon as it has changed; None once it listens.

        What changed before the None is not told.

        Raises:
            StoreUnavailableError: The store does not tell, or tells no more.
        """
