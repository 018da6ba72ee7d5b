"""Prompts -> token ids: the judge's chat template, in which texts from users stay plain text."""

import datetime
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from app.core.errors import ControlTokenError, PromptTooLongError, RequestError, StartupError
from app.engines.markers import ZERO_WIDTH_SPACE, MarkerBreaker, plain_markers
from app.ports import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Stands for the user message while a template is rendered; no template has it in it.
_SENTINEL = "scopeJudgeUserMessage"
# Around the stand-in, to see whether a template strips blanks; templates themselves use others.
_BLANK = "\t"
# Beginnings of a message that a tokenizer may join with what stands before it.
_PROBES = ("x", " x", "  x", "\nx", "\n\nx", "1", "é", ".", "'s")
# Some templates tell the model today's date: the same prompt must not score otherwise tomorrow.
_DATE = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class LabelTokens:
    """The token ids of the two labels, where the judge answers."""

    a: int
    b: int


class Frame(NamedTuple):
    """What a chat template puts around every user message.

    Args:
        head: Before it: control tokens, the system message.
        tail: After it: the end of the turn, and the beginning of the judge's answer.
        trims_start: Whether the template strips blanks before the message.
        trims_end: Whether it strips blanks after the message.
        head_ids: Of the beginning of head that is tokenised once for all prompts; empty where a
            prompt has to be tokenised in one piece.
        rest: The end of head, which is tokenised with the message.
        control_tokens: How often each control token stands in rest and tail, by id.
        markers: Breaks what the template marks turns with and is no control token.
    """

    head: str
    tail: str
    trims_start: bool
    trims_end: bool
    head_ids: tuple[int, ...]
    rest: str
    control_tokens: Counter[int]
    markers: MarkerBreaker

    @property
    def text(self) -> str:
        """Both halves, as part of a judge's identity."""
        return f"{self.head}{{user}}{self.tail}"


def load_tokenizer(folder: str) -> "PreTrainedTokenizerBase":
    """Loads a model's tokenizer, which must have a chat template.

    Raises:
        StartupError: There is none, or it has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as exc:
        raise StartupError(f"{folder} has no tokenizer that can be loaded: {exc}") from exc
    if not tokenizer.chat_template:
        raise StartupError(
            f"the tokenizer in {folder} has no chat template: this is no instruction-tuned model, "
            "which a judge needs to be"
        )
    # The renderer checks lengths itself; transformers would only warn, on every long prompt.
    tokenizer.model_max_length = sys.maxsize
    return cast("PreTrainedTokenizerBase", tokenizer)


class PromptRenderer:
    """Renders prompts for one judge.

    The chat template is rendered once for a system message, around a stand-in for the user's; a
    prompt is put between the two halves. So no text can reach the template's own logic ("/think",
    "[IMG]"), and a prompt that needs none of it has exactly the official tokens.

    Args:
        tokenizer: With a chat template.
        max_prompt_tokens: Longest prompt the engine takes; longer ones are errors, never cut.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_prompt_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_prompt_tokens = max_prompt_tokens
        control = _control_tokens(tokenizer)
        self._control_ids = frozenset(control)
        texts = sorted(set(control.values()), key=len, reverse=True)
        self._control_text = re.compile("|".join(map(re.escape, texts)) or r"(?!)")
        self._frames: dict[str, Frame] = {}
        # No token stands for more characters than its own spelling has.
        longest = max(map(len, tokenizer.get_vocab()))
        self._max_prompt_characters = max_prompt_tokens * longest

    def token_ids(self, prompts: Sequence[Prompt]) -> list[list[int] | RequestError]:
        """Renders prompts in one batch.

        Where a user message would add control tokens, each of their spellings in it is broken by a
        zero-width space, which changes no token outside of it. So are the markers that the chat
        template has in plain text, wherever they are in a user message.

        Returns:
            For each prompt its token ids, or its own error: `PromptTooLongError`, or
            `ControlTokenError` where a control token or a marker cannot be broken.

        Raises:
            StartupError: The chat template cannot hold a judge's prompt.
        """
        readable = [self._without_markers(prompt) for prompt in prompts]
        kept = [each for each in readable if isinstance(each, Prompt)]
        encoded = iter(self._encode([self._open_text(prompt) for prompt in kept]))
        return [
            self._checked(each, next(encoded)) if isinstance(each, Prompt) else each
            for each in readable
        ]

    def _without_markers(self, prompt: Prompt) -> Prompt | RequestError:
        """The prompt with the plain markers in its user message broken, or its error."""
        # Tokenising megabytes that cannot fit would take seconds, in which nothing else is judged.
        if len(self._open_text(prompt)) > self._max_prompt_characters:
            return self._too_long("too many")
        markers = self.frame(prompt.system).markers
        if not markers.finds(prompt.user):
            return prompt
        harmless = prompt._replace(user=markers.broken(prompt.user))
        if markers.finds(harmless.user):
            return ControlTokenError(
                "a text holds turn markers of this judge that cannot be broken"
            )
        return harmless

    def frame(self, system: str) -> Frame:
        """What stands around a user message under this system message.

        Raises:
            StartupError: The chat template fails, or uses a user message otherwise than once.
        """
        if system not in self._frames:
            self._frames[system] = self._new_frame(system)
        return self._frames[system]

    def _new_frame(self, system: str) -> Frame:
        from jinja2 import TemplateError

        user = {"role": "user", "content": f"{_BLANK}{_SENTINEL}{_BLANK}"}
        try:
            text = self._apply_template([{"role": "system", "content": system}, user])
            if system.strip() not in text:
                raise TemplateError("the system message is left out")
        except TemplateError:
            # Gemma and others take no system message: it goes before the question then.
            user["content"] = f"{system}\n\n{user['content']}"
            try:
                text = self._apply_template([user])
            except TemplateError as exc:
                raise StartupError(f"this judge's chat template fails: {exc}") from exc
        halves = text.split(_SENTINEL)
        if len(halves) != 2:
            raise StartupError("this judge's chat template does not use a message exactly once")
        head, tail = halves
        trims = not head.endswith(_BLANK), not tail.startswith(_BLANK)
        head, tail = head.removesuffix(_BLANK), tail.removeprefix(_BLANK)
        head_ids, rest = self._split_head(head, tail)
        ids = self._encode([rest + "x" + tail])[0]
        markers = MarkerBreaker(self._plain_markers(text, system), self._as_read)
        return Frame(head, tail, *trims, head_ids, rest, self._count_control(ids), markers)

    def _plain_markers(self, text: str, system: str) -> tuple[str, ...]:
        """The plain markers around a judge's prompt, and those that only longer talks have."""
        from jinja2 import TemplateError

        texts = [text.replace(system.strip(), _SENTINEL) if system.strip() else text]
        turns = [{"role": role, "content": _SENTINEL} for role in ("user", "assistant", "user")]
        for first in ({"role": "system", "content": _SENTINEL}, None):
            try:
                texts.append(self._apply_template([first, *turns] if first else turns))
                break
            except TemplateError:
                # A template without a system message, or for single questions only.
                continue
        gaps = [gap for each in texts for gap in each.split(_SENTINEL)]
        return plain_markers(gaps, self._control_text)

    def _as_read(self, text: str) -> str:
        """A text as the tokenizer cuts it, with blanks for the marks that stand for them."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None or backend.normalizer is None:
            return text
        return cast(str, backend.normalizer.normalize_str(text).replace("\u2581", " "))

    def _split_head(self, head: str, tail: str) -> tuple[tuple[int, ...], str]:
        """The ids of head up to its last control token, and what is left of it.

        A tokenizer takes a text apart at control tokens before anything else, so that the parts
        have the ids that they have in one piece; but for some that treat the beginning of a text
        in a way of its own, which the first probe shows.
        """
        ends = [match.end() for match in self._control_text.finditer(head)]
        if not ends:
            return (), head
        beginning, rest = head[: ends[-1]], head[ends[-1] :]
        (head_ids,) = self._encode([beginning])
        for probe in _PROBES:
            whole, part = self._encode([head + probe + tail, rest + probe + tail])
            if whole != head_ids + part:
                return (), head
        return tuple(head_ids), rest

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        text = self._tokenizer.apply_chat_template(
            [message for message in messages if message["content"]],
            tokenize=False,
            add_generation_prompt=True,
            # Thinking models would answer with a thought instead of a label.
            enable_thinking=False,
            date_string=_DATE.strftime("%d %b %Y"),
            strftime_now=_DATE.strftime,
        )
        return cast(str, text)

    def _text(self, prompt: Prompt) -> str:
        frame = self.frame(prompt.system)
        user = prompt.user.lstrip() if frame.trims_start else prompt.user
        user = user.rstrip() if frame.trims_end else user
        return frame.head + user + frame.tail + prompt.prefill

    def _open_text(self, prompt: Prompt) -> str:
        """What a prompt has behind the part that is tokenised once."""
        frame = self.frame(prompt.system)
        return self._text(prompt)[len(frame.head) - len(frame.rest) :]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._tokenizer(
            list(texts), add_special_tokens=False, return_attention_mask=False
        )
        return cast(list[list[int]], encoded["input_ids"])

    def _checked(self, prompt: Prompt, ids: list[int]) -> list[int] | RequestError:
        """The whole prompt's ids from those of its open text."""
        frame = self.frame(prompt.system)
        expected = frame.control_tokens
        if self._count_control(ids) != expected:
            harmless = prompt._replace(user=self._neutralised(prompt.user))
            ids = self._encode([self._open_text(harmless)])[0]
            if self._count_control(ids) != expected:
                return ControlTokenError(
                    "a text holds control tokens of this judge that cannot be made plain text"
                )
        ids = [*frame.head_ids, *ids]
        if len(ids) > self._max_prompt_tokens:
            return self._too_long(str(len(ids)))
        return ids

    def _too_long(self, tokens: str) -> PromptTooLongError:
        return PromptTooLongError(
            f"the prompt has {tokens} tokens and this judge reads at most "
            f"{self._max_prompt_tokens}; shorten the question or the responses, or run a judge "
            "with a longer context"
        )

    def _neutralised(self, text: str) -> str:
        return self._control_text.sub(
            lambda match: match[0][0] + ZERO_WIDTH_SPACE + match[0][1:], text
        )

    def _count_control(self, ids: list[int]) -> Counter[int]:
        return Counter(i for i in ids if i in self._control_ids)

    def label_tokens(self, prompt: Prompt) -> LabelTokens:
        """Finds the tokens that A and B are where the judge answers.

        Neither `encode("A")[0]`, which can be the token that begins a text, nor the "A" after a
        space: each label must be one token exactly there, and stay it with "]]" behind.

        Raises:
            StartupError: A label is no single token there, or both are the same, or the chat
                template cannot hold a judge's prompt.
        """
        text = self._text(prompt)
        base = self._encode([text])[0]
        found = []
        for label in ("A", "B"):
            alone, closed = self._encode([text + label, text + label + "]]"])
            single = alone[: len(base)] == base and len(alone) == len(base) + 1
            if not single or closed[: len(alone)] != alone or alone[-1] in self._control_ids:
                raise StartupError(
                    f'the label "{label}" is no single token of this judge after its prompt'
                    + (f' and the prefill "{prompt.prefill}"' if prompt.prefill else "")
                    + '; set another SCOPE_PREFILL ("[[" suits most models) or another SCOPE_MODEL'
                )
            found.append(alone[-1])
        if found[0] == found[1]:
            raise StartupError("this judge has one token for both labels, A and B")
        return LabelTokens(a=found[0], b=found[1])


def _control_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """The tokens, by id, that mean something to the model which no text may say.

    All special ones; of the other added ones those that the chat template uses or that look like
    control tokens. Gemma has added tokens for line breaks and HTML tags: these are text.
    """
    template = str(tokenizer.chat_template)
    return {
        i: token.content
        for i, token in tokenizer.added_tokens_decoder.items()
        if token.content.strip()
        and (
            token.special
            or token.content in template
            or re.fullmatch(r"<[|｜].*[|｜]>", token.content)  # noqa: RUF001
        )
    }
