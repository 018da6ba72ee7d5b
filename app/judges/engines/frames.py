"""Puts users' texts into the frame of a chat template, in which they stay plain text."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.core.errors import ControlTokenError, PromptTooLongError, RequestError
from app.judges.engines.chat_template import ChatTemplate
from app.judges.engines.markers import MarkerBreaker

# Stands for a text while a template is rendered; it occurs in no template.
_PLACEHOLDER = re.compile(r"scopeJudgeText(\d+)End")
# Put around a placeholder to test whether a template strips blanks; templates use no tabs.
_BLANK = "\t"


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """The place of one text: whether the template strips blanks at its start and at its end."""

    trims_start: bool
    trims_end: bool

    def filled(self, text: str) -> str:
        """The text as the template would write it."""
        text = text.lstrip() if self.trims_start else text
        return text.rstrip() if self.trims_end else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The text of a chat template around the texts of users, and facts about it.

    Args:
        gaps: The template's own texts before, between and after the texts: one more than slots.
        slots: The places of the texts.
        control_tokens: Id of each control token of the gaps -> number of occurrences, without
            those of `head_ids`.
        markers: Breaks the template's plain-text turn markers in texts.
        head_ids: Token ids of the beginning of the first gap, which is tokenized once for all
            prompts; empty if a prompt has to be tokenized in one piece.
        head_characters: Length of that beginning.
    """

    gaps: tuple[str, ...]
    slots: tuple[Slot, ...]
    control_tokens: Counter[int]
    markers: MarkerBreaker
    head_ids: tuple[int, ...] = ()
    head_characters: int = 0

    def filled(self, texts: Sequence[str]) -> str:
        """The whole prompt with these texts in their places."""
        filled = [self.gaps[0]]
        for gap, slot, text in zip(self.gaps[1:], self.slots, texts, strict=True):
            filled += (slot.filled(text), gap)
        return "".join(filled)


class Framed(NamedTuple):
    """A prompt before it is tokenized.

    Args:
        frame: The template's text around them.
        texts: The texts of users.
        prefill: The beginning of the judge's answer, behind the frame.
    """

    frame: Frame
    texts: Sequence[str]
    prefill: str = ""

    @property
    def open_text(self) -> str:
        """The text of the prompt after the part that is tokenized once."""
        return self.frame.filled(self.texts)[self.frame.head_characters :] + self.prefill


def placeholder(number: int) -> str:
    """Returns what stands for a text while a template is rendered to find its frame."""
    return f"{_BLANK}scopeJudgeText{number}End{_BLANK}"


def split_at_placeholders(text: str, count: int) -> tuple[list[str], tuple[Slot, ...]] | None:
    """Splits a rendered template into gaps and slots.

    Args:
        text: The template with the placeholders 0, 1, ... as its texts.
        count: Number of the placeholders.

    Returns:
        None unless each placeholder is there once, in order.
    """
    parts = _PLACEHOLDER.split(text)
    if parts[1::2] != [str(number) for number in range(count)]:
        return None
    slots = tuple(
        Slot(trims_start=not before.endswith(_BLANK), trims_end=not after.startswith(_BLANK))
        for before, after in zip(parts[:-2:2], parts[2::2], strict=True)
    )
    return [gap.removeprefix(_BLANK).removesuffix(_BLANK) for gap in parts[::2]], slots


def tokenized(
    template: ChatTemplate, prompts: Sequence[Framed | RequestError], *, max_prompt_tokens: int
) -> list[list[int] | RequestError]:
    """Tokenizes prompts in one batch.

    If a text would add control tokens, a zero-width space breaks each of their spellings in it; no
    token outside of the texts changes. The template's plain-text turn markers are always broken.

    Args:
        template: The template of the frames, with the tokenizer.
        prompts: The prompts; an error stays as it is.
        max_prompt_tokens: Longest prompt in tokens; a longer one is an error and is never cut.

    Returns:
        For each prompt, in order, its token ids or its own error: `PromptTooLongError`, or
        `ControlTokenError` if a control token or a marker cannot be broken.
    """
    # Refused before tokenizing: megabytes would block all other judgments for seconds.
    most_characters = max_prompt_tokens * template.longest_token
    safe = [
        _without_markers(prompt, max_prompt_tokens, most_characters)
        if isinstance(prompt, Framed)
        else prompt
        for prompt in prompts
    ]
    encoded = iter(template.encode([one.open_text for one in safe if isinstance(one, Framed)]))
    return [
        _checked(template, one, next(encoded), max_prompt_tokens)
        if isinstance(one, Framed)
        else one
        for one in safe
    ]


def _without_markers(prompt: Framed, most: int, most_characters: int) -> Framed | RequestError:
    if sum(map(len, prompt.texts)) > most_characters:
        return _too_long("too many", most)
    markers = prompt.frame.markers
    if not any(map(markers.finds, prompt.texts)):
        return prompt
    broken = [markers.broken(text) for text in prompt.texts]
    if any(map(markers.finds, broken)):
        return ControlTokenError(
            "a text contains turn markers of this judge that cannot be escaped; remove them"
        )
    return prompt._replace(texts=broken)


def _checked(
    template: ChatTemplate, prompt: Framed, ids: list[int], most: int
) -> list[int] | RequestError:
    """The ids of the whole prompt, given the ids of its open text, or its error."""
    expected = prompt.frame.control_tokens
    if template.count_control(ids) != expected:
        harmless = prompt._replace(texts=[template.neutralized(text) for text in prompt.texts])
        (ids,) = template.encode([harmless.open_text])
        if template.count_control(ids) != expected:
            return ControlTokenError(
                "a text contains control tokens of this judge that cannot be escaped; remove them"
            )
    ids = [*prompt.frame.head_ids, *ids]
    return ids if len(ids) <= most else _too_long(str(len(ids)), most)


def _too_long(tokens: str, most: int) -> PromptTooLongError:
    return PromptTooLongError(
        f"the prompt has {tokens} tokens and this judge reads at most {most}; shorten the question "
        "or the responses, or run a judge with a longer context"
    )
