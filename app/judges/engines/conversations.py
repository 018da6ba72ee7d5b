"""Renders whole conversations for reward models, in which users' texts stay plain text."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from app.core.comparison import Turn
from app.core.errors import InvalidComparisonError, RequestError, StartupError
from app.judges.engines.chat_template import ChatTemplate
from app.judges.engines.frames import Frame, Framed, placeholder, split_at_placeholders, tokenized
from app.judges.engines.markers import MarkerBreaker, plain_markers
from app.ports import Conversation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The simplest conversation, with which a start tests a model.
PROBE: Conversation = (Turn("user", "Which is larger, 2 or 1?"), Turn("assistant", "2"))
# Callers choose the roles of conversations, so the number of cached frames is bounded.
_MOST_FRAMES = 256


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
        # The frame of conversations with these roles; an error if they have none.
        self.frame = lru_cache(maxsize=_MOST_FRAMES)(self._new_frame)

    def token_ids(self, conversations: Sequence[Conversation]) -> list[list[int] | RequestError]:
        """Renders conversations.

        Returns:
            For each conversation, in order, its token ids or its own error: those of `tokenized`,
            or `InvalidComparisonError` if the template does not take its roles.
        """
        framed = [self._framed(conversation) for conversation in conversations]
        return tokenized(self._template, framed, max_prompt_tokens=self._max_prompt_tokens)

    def _framed(self, conversation: Conversation) -> Framed | InvalidComparisonError:
        frame = self.frame(tuple(turn.role for turn in conversation))
        if not isinstance(frame, Frame):
            return frame
        return Framed(frame, [turn.content for turn in conversation])

    def _new_frame(self, roles: tuple[str, ...]) -> Frame | InvalidComparisonError:
        from jinja2 import TemplateError

        turns = [
            {"role": role, "content": placeholder(number)} for number, role in enumerate(roles)
        ]
        try:
            text = self._template.apply(turns)
        except TemplateError as exc:
            return _not_taken(roles, f"it fails: {exc}")
        split = split_at_placeholders(text, len(roles))
        if split is None:
            return _not_taken(roles, "it leaves out a turn, or writes one twice")
        gaps, slots = split
        (ids,) = self._template.encode(["x".join(gaps)])
        markers = plain_markers(gaps, self._template.control_text)
        return Frame(
            gaps=tuple(gaps),
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
