"""A model's chat template: the frame that it puts around users' texts, which stay plain text."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from app.core.errors import ControlTokenError, PromptTooLongError, RequestError
from app.judges.engines.markers import ZERO_WIDTH_SPACE, MarkerBreaker, plain_markers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Some templates contain the current date: a fixed one keeps scores the same on every day.
_DATE = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
# Stands for a text while a template is rendered; it occurs in no template.
_PLACEHOLDER = re.compile(r"scopeJudgeText(\d+)End")
# Put around a placeholder to test whether a template strips blanks; templates use no tabs.
_BLANK = "\t"


def placeholder(number: int) -> str:
    """Returns what stands for a text while a template is rendered to find its frame."""
    return f"{_BLANK}scopeJudgeText{number}End{_BLANK}"


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
        control_tokens: Id of each control token of the gaps -> number of occurrences.
        markers: Breaks the template's plain-text turn markers in texts.
    """

    gaps: tuple[str, ...]
    slots: tuple[Slot, ...]
    control_tokens: Counter[int]
    markers: MarkerBreaker

    def filled(self, texts: Sequence[str]) -> str:
        """The whole prompt with these texts in their places."""
        filled = [self.gaps[0]]
        for gap, slot, text in zip(self.gaps[1:], self.slots, texts, strict=True):
            filled += (slot.filled(text), gap)
        return "".join(filled)


# The frame of a prompt, the texts of users in it, and the beginning of the judge's answer.
Framed = tuple[Frame, Sequence[str], str]


class ChatTemplate:
    """The chat template of a model."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        control = _control_tokens(tokenizer)
        self.control_ids = frozenset(control)
        texts = sorted(set(control.values()), key=len, reverse=True)
        # Matches the spelling of every control token.
        self.control_text = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        # No token can encode more characters than its spelling has.
        self.longest_token = max(map(len, tokenizer.get_vocab()))

    def apply(self, messages: Sequence[dict[str, str]], **options: Any) -> str:
        """Renders messages with `role` and `content`; `options` are variables of the template.

        Raises:
            jinja2.TemplateError: The template does not take these messages.
        """
        text = self.tokenizer.apply_chat_template(
            list(messages),
            **{
                "date_string": _DATE.strftime("%d %b %Y"),
                "strftime_now": _DATE.strftime,
                **options,
                "tokenize": False,
            },
        )
        return cast(str, text)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenizes texts that the template has rendered: no token is put around them."""
        if not texts:
            return []
        encoded = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)
        return cast(list[list[int]], encoded["input_ids"])

    def count_control(self, ids: Sequence[int]) -> Counter[int]:
        """Counts the control tokens."""
        return Counter(i for i in ids if i in self.control_ids)

    def neutralized(self, text: str) -> str:
        """The text with a zero-width space in each spelling of a control token."""
        return self.control_text.sub(
            lambda match: match[0][0] + ZERO_WIDTH_SPACE + match[0][1:], text
        )

    def as_read(self, text: str) -> str:
        """The text as the tokenizer normalizes it, with its marks for blanks turned back."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or backend.normalizer is None:
            return text
        return cast(str, backend.normalizer.normalize_str(text).replace("\u2581", " "))

    def frame(
        self, text: str, count: int, *, behind: str = "", markers: Iterable[str] | None = None
    ) -> Frame | None:
        """The frame of a rendered text with `count` placeholders as the texts of users.

        Args:
            behind: Text that is put behind it.
            markers: The template's plain-text turn markers; None to find them in the text.

        Returns:
            None unless each placeholder is there once, in order.
        """
        parts = _PLACEHOLDER.split(text)
        if parts[1::2] != [str(number) for number in range(count)]:
            return None
        gaps = [gap.removeprefix(_BLANK).removesuffix(_BLANK) for gap in parts[::2]]
        gaps[-1] += behind
        (ids,) = self.encode(["x".join(gaps)])
        found = plain_markers(gaps, self.control_text) if markers is None else markers
        return Frame(
            gaps=tuple(gaps),
            slots=tuple(
                Slot(
                    trims_start=not before.endswith(_BLANK), trims_end=not after.startswith(_BLANK)
                )
                for before, after in zip(parts[:-2:2], parts[2::2], strict=True)
            ),
            control_tokens=self.count_control(ids),
            markers=MarkerBreaker(found, self.as_read),
        )

    def tokenized(
        self, prompts: Sequence[Framed | RequestError], *, max_prompt_tokens: int
    ) -> list[list[int] | RequestError]:
        """Tokenizes prompts in one batch.

        If a text would add control tokens, a zero-width space breaks each of their spellings in it;
        no token outside of the texts changes. The template's plain-text turn markers are always
        broken.

        Returns:
            For each prompt, in order, its token ids or its own error: the one that it already is,
            `PromptTooLongError`, or `ControlTokenError` if a control token or a marker cannot be
            broken.
        """
        safe = [
            prompt
            if isinstance(prompt, RequestError)
            else self._without_markers(prompt, max_prompt_tokens)
            for prompt in prompts
        ]
        encoded = iter(
            self.encode([_text_of(one) for one in safe if not isinstance(one, RequestError)])
        )
        return [
            one
            if isinstance(one, RequestError)
            else self._checked(one, next(encoded), max_prompt_tokens)
            for one in safe
        ]

    def _without_markers(self, prompt: Framed, most: int) -> Framed | RequestError:
        frame, texts, prefill = prompt
        # Refused before tokenizing: megabytes would block all other judgments for seconds.
        if sum(map(len, texts)) > most * self.longest_token:
            return _too_long("too many", most)
        if not any(map(frame.markers.finds, texts)):
            return prompt
        broken = [frame.markers.broken(text) for text in texts]
        if any(map(frame.markers.finds, broken)):
            return ControlTokenError(
                "a text contains turn markers of this judge that cannot be escaped; remove them"
            )
        return frame, broken, prefill

    def _checked(self, prompt: Framed, ids: list[int], most: int) -> list[int] | RequestError:
        """The ids of a prompt, with control tokens in texts broken, or its error."""
        frame, texts, prefill = prompt
        if self.count_control(ids) != frame.control_tokens:
            harmless = [self.neutralized(text) for text in texts]
            (ids,) = self.encode([_text_of((frame, harmless, prefill))])
            if self.count_control(ids) != frame.control_tokens:
                return ControlTokenError(
                    "a text contains control tokens of this judge that cannot be escaped; remove "
                    "them"
                )
        return ids if len(ids) <= most else _too_long(str(len(ids)), most)


def _text_of(prompt: Framed) -> str:
    frame, texts, prefill = prompt
    return frame.filled(texts) + prefill


def no_room(ids: Sequence[int], answer_tokens: int, context: int) -> PromptTooLongError | None:
    """The error of a prompt whose answer does not fit into the context behind it."""
    if len(ids) + answer_tokens <= context:
        return None
    return PromptTooLongError(
        f"the prompt has {len(ids)} tokens, its answer may take {answer_tokens}, and this judge's "
        f"context is {context}; shorten the question or the responses, or run a judge with a "
        "longer context"
    )


def _too_long(tokens: str, most: int) -> PromptTooLongError:
    return PromptTooLongError(
        f"the prompt has {tokens} tokens and this judge reads at most {most}; shorten the question "
        "or the responses, or run a judge with a longer context"
    )


def _control_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """Id -> spelling of the tokens that control the model and must not come from a text.

    These are all special tokens, and the other added tokens that the chat template uses or that
    look like control tokens. Gemma's added tokens for line breaks and HTML tags are text.
    """
    template = str(tokenizer.chat_template)
    return {
        i: token.content
        for i, token in tokenizer.added_tokens_decoder.items()
        if token.content.strip()
        and (
            token.special
            or token.content in template
            or re.fullmatch(r"<[|｜].*[|｜]>", token.content)
        )
    }
