"""Renders whole conversations for reward models, in which users' texts stay plain text."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.comparison import Turn
from app.core.errors import InvalidComparisonError, RequestError, StartupError
from app.judges.engines.chat_template import (
    ChatTemplate,
    control_tokens_stay,
    markers_stay,
    too_long,
)
from app.judges.engines.markers import MarkerBreaker, plain_markers
from app.ports import Conversation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Placeholder for a turn while the template is rendered; it occurs in no template.
_SENTINEL = "scopeJudgeTurn{number}End"
_ANY_SENTINEL = re.compile(r"scopeJudgeTurn(\d+)End")
# Put around the placeholder to test whether a template strips blanks; templates use no tabs.
_BLANK = "\t"
# The simplest conversation, with which a start tests a model.
PROBE: Conversation = (Turn("user", "Which is larger, 2 or 1?"), Turn("assistant", "2"))
# Callers choose the roles of conversations, so the number of cached frames is bounded.
_MOST_FRAMES = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class _Slot:
    """The place of one turn: whether the template strips blanks at its start and at its end."""

    trims_start: bool
    trims_end: bool

    def filled(self, text: str) -> str:
        """The text as the template would write it."""
        text = text.lstrip() if self.trims_start else text
        return text.rstrip() if self.trims_end else text


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationFrame:
    """The text that a chat template puts around the turns of conversations with some roles.

    Args:
        gaps: The texts before, between and after the turns: one more than there are turns.
        slots: The places of the turns.
        control_tokens: Id of each control token of the gaps -> number of occurrences.
        markers: Breaks the template's plain-text turn markers in turns.
    """

    gaps: tuple[str, ...]
    slots: tuple[_Slot, ...]
    control_tokens: Counter[int]
    markers: MarkerBreaker

    def filled(self, texts: Sequence[str]) -> str:
        """The conversation with these texts as its turns."""
        filled = [self.gaps[0]]
        for gap, slot, text in zip(self.gaps[1:], self.slots, texts, strict=True):
            filled += (slot.filled(text), gap)
        return "".join(filled)


class ConversationRenderer:
    """Renders conversations for one reward model.

    The chat template is rendered once for each sequence of roles, with placeholders as the turns.
    No text can therefore reach the template's own logic, and a conversation without such text has
    exactly the official tokens. The template writes all tokens, also the one that begins a text.

    Args:
        tokenizer: Tokenizer with a chat template.
        max_prompt_tokens: Longest conversation in tokens; a longer one is an error and never cut.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_prompt_tokens: int) -> None:
        self._template = ChatTemplate(tokenizer)
        self._max_prompt_tokens = max_prompt_tokens
        self._max_prompt_characters = max_prompt_tokens * self._template.longest_token
        self._frames: dict[tuple[str, ...], ConversationFrame | InvalidComparisonError] = {}

    def token_ids(self, conversations: Sequence[Conversation]) -> list[list[int] | RequestError]:
        """Renders conversations.

        Control tokens and plain-text turn markers in turns are broken by a zero-width space, as
        `PromptRenderer` does.

        Returns:
            For each conversation, in order, its token ids or its own error: `PromptTooLongError`,
            `ControlTokenError`, or `InvalidComparisonError` if the template does not take its
            roles.
        """
        return [self._token_ids(conversation) for conversation in conversations]

    def frame(self, roles: tuple[str, ...]) -> ConversationFrame | InvalidComparisonError:
        """The frame of conversations with these roles, cached; an error if they have none."""
        # Threads share the cache: each reads it once and writes it once.
        frame = self._frames.get(roles)
        if frame is None:
            frame = self._new_frame(roles)
            if len(self._frames) >= _MOST_FRAMES:
                self._frames.clear()
            self._frames[roles] = frame
        return frame

    def _token_ids(self, conversation: Conversation) -> list[int] | RequestError:
        # Refused before tokenising: megabytes would block all other judgments for seconds.
        if sum(len(turn.content) for turn in conversation) > self._max_prompt_characters:
            return too_long("too many", self._max_prompt_tokens)
        frame = self.frame(tuple(turn.role for turn in conversation))
        if isinstance(frame, InvalidComparisonError):
            return frame
        texts = [turn.content for turn in conversation]
        if any(map(frame.markers.finds, texts)):
            texts = [frame.markers.broken(text) for text in texts]
            if any(map(frame.markers.finds, texts)):
                return markers_stay()
        ids = self._encoded(frame, texts)
        if self._template.count_control(ids) != frame.control_tokens:
            ids = self._encoded(frame, [self._template.neutralised(text) for text in texts])
            if self._template.count_control(ids) != frame.control_tokens:
                return control_tokens_stay()
        if len(ids) > self._max_prompt_tokens:
            return too_long(str(len(ids)), self._max_prompt_tokens)
        return ids

    def _encoded(self, frame: ConversationFrame, texts: Sequence[str]) -> list[int]:
        (ids,) = self._template.encode([frame.filled(texts)])
        return ids

    def _new_frame(self, roles: tuple[str, ...]) -> ConversationFrame | InvalidComparisonError:
        from jinja2 import TemplateError

        turns = [
            {"role": role, "content": _BLANK + _SENTINEL.format(number=number) + _BLANK}
            for number, role in enumerate(roles)
        ]
        try:
            text = self._template.apply(turns)
        except TemplateError as exc:
            return _not_taken(roles, f"it fails: {exc}")
        parts = _ANY_SENTINEL.split(text)
        if parts[1::2] != [str(number) for number in range(len(roles))]:
            return _not_taken(roles, "it leaves out a turn, or writes one twice")
        slots = tuple(
            _Slot(
                trims_start=not before.endswith(_BLANK),
                trims_end=not after.startswith(_BLANK),
            )
            for before, after in zip(parts[:-2:2], parts[2::2], strict=True)
        )
        gaps = tuple(gap.removeprefix(_BLANK).removesuffix(_BLANK) for gap in parts[::2])
        (ids,) = self._template.encode(["x".join(gaps)])
        markers = plain_markers(gaps, self._template.control_text)
        return ConversationFrame(
            gaps=gaps,
            slots=slots,
            control_tokens=self._template.count_control(ids),
            markers=MarkerBreaker(markers, self._template.as_read),
        )


def chat_frame_of(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Returns the text of the chat template around a question and a response.

    Raises:
        StartupError: The template takes no question with a response.
    """
    # No text is rendered, so no length matters.
    frame = ConversationRenderer(tokenizer, max_prompt_tokens=1).frame(
        tuple(turn.role for turn in PROBE)
    )
    if isinstance(frame, InvalidComparisonError):
        raise StartupError(frame.detail)
    return frame.filled([f"{{{turn.role}}}" for turn in PROBE])


def _not_taken(roles: Sequence[str], why: str) -> InvalidComparisonError:
    return InvalidComparisonError(
        "this judge's chat template does not take a conversation with the turns "
        f"{', '.join(roles)}: {why}"
    )
