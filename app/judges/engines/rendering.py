"""Renders prompts to token ids with the chat template, in which users' texts stay plain text."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from app.core.errors import RequestError, StartupError
from app.judges.engines.chat_template import ChatTemplate
from app.judges.engines.frames import Frame, Framed, placeholder, split_at_placeholders, tokenized
from app.judges.engines.imports import importing
from app.judges.engines.markers import MarkerBreaker, plain_markers
from app.judges.engines.thinking import PLAIN, EndOfThought, UseOfTemplate
from app.ports import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Beginnings of a message that a tokenizer may merge with the text before it.
_PROBES = ("x", " x", "  x", "\nx", "\n\nx", "1", "é", ".", "'s")


class LabelTokens(NamedTuple):
    """The token ids of the labels A and B at the place where the judge answers."""

    a: int
    b: int


def load_tokenizer(folder: str) -> "PreTrainedTokenizerBase":
    """Loads a model's tokenizer.

    Args:
        folder: Folder or Hugging Face id of the model.

    Raises:
        StartupError: There is no tokenizer, or it has no chat template.
    """
    try:
        with importing("transformers"):
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as exc:
        raise StartupError(f"{folder} has no tokenizer that can be loaded: {exc}") from exc
    if not tokenizer.chat_template:
        raise StartupError(
            f"the tokenizer in {folder} has no chat template: a judge needs an instruction-tuned "
            "model"
        )
    # The renderer checks lengths; this turns off transformers' warning on every long prompt.
    tokenizer.model_max_length = sys.maxsize
    return cast("PreTrainedTokenizerBase", tokenizer)


class PromptRenderer:
    """Renders prompts for one judge.

    The chat template is rendered once for each system message, with a placeholder as the user
    message, and split there; each prompt is put between the two halves. No text can therefore reach
    the template's own logic ("/think", "[IMG]"), and a prompt without such text has exactly the
    official tokens.

    Args:
        tokenizer: Tokenizer with a chat template.
        max_prompt_tokens: Longest prompt in tokens; a longer one is an error and is never cut.
        use: Variables of the chat template, and whether the judge thinks. If it does, prompts end
            behind an empty thought, where its label is read.
        thinks_next: Whether prompts end where the thought of a judge that thinks begins.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_prompt_tokens: int,
        use: UseOfTemplate = PLAIN,
        thinks_next: bool = False,
    ) -> None:
        self._template = ChatTemplate(tokenizer)
        self._use = use
        self._thinks_next = thinks_next
        self.end = EndOfThought.find(self._template, use.think_end) if use.thinks else None
        self._max_prompt_tokens = max_prompt_tokens
        self._frames: dict[str, Frame] = {}

    def for_thoughts(self) -> "PromptRenderer":
        """The renderer of the same judge whose prompts end where its thought begins."""
        return PromptRenderer(
            self._template.tokenizer,
            max_prompt_tokens=self._max_prompt_tokens,
            use=self._use,
            thinks_next=True,
        )

    def tokens_after_thought(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens between the end that a judge writes to its thought and its label.

        Raises:
            StartupError: They cannot follow what a model wrote.
        """
        assert self.end is not None, "the judge does not think"
        return self.end.tokens_after(self._template, prompt.prefill)

    def token_ids(self, prompts: Sequence[Prompt]) -> list[list[int] | RequestError]:
        """Renders prompts in one batch; see `tokenized` for what happens to their texts.

        Raises:
            StartupError: The chat template cannot hold a judge's prompt.
        """
        framed = [self._framed(prompt) for prompt in prompts]
        return tokenized(self._template, framed, max_prompt_tokens=self._max_prompt_tokens)

    def chat_frame(self, system: str) -> str:
        """The text that the chat template puts around a user message; raises as `frame`."""
        return self.frame(system).filled(["{user}"])

    def _framed(self, prompt: Prompt) -> Framed:
        return Framed(self.frame(prompt.system), [prompt.user], prompt.prefill)

    def frame(self, system: str) -> Frame:
        """The frame that the chat template puts around user messages, cached by system message.

        Raises:
            StartupError: The chat template fails, or does not use the user message exactly once.
        """
        if system not in self._frames:
            self._frames[system] = self._new_frame(system)
        return self._frames[system]

    def _new_frame(self, system: str) -> Frame:
        from jinja2 import TemplateError

        user = {"role": "user", "content": placeholder(0)}
        try:
            text = self._apply_template([{"role": "system", "content": system}, user])
            if system.strip() not in text:
                raise TemplateError("the system message is left out")
        except TemplateError:
            # Gemma and others take no system message: it is put in front of the question.
            user["content"] = f"{system}\n\n{user['content']}"
            try:
                text = self._apply_template([user])
            except TemplateError as exc:
                raise StartupError(f"this judge's chat template fails: {exc}") from exc
        split = split_at_placeholders(text, 1)
        if split is None:
            raise StartupError("this judge's chat template does not use a message exactly once")
        (head, tail), slots = split
        if self.end is not None:
            if self.end.marker in tail:
                raise StartupError(
                    "this judge's chat template ends the thought before it begins: change "
                    "SCOPE_CHAT_TEMPLATE_KWARGS, or set SCOPE_SCORING=labels"
                )
            if not self._thinks_next:
                tail += self.end.text
        head_ids, rest = self._split_head(head, tail)
        ids = self._template.encode([rest + "x" + tail])[0]
        return Frame(
            gaps=(head, tail),
            slots=slots,
            control_tokens=self._template.count_control(ids),
            markers=MarkerBreaker(self._plain_markers(text, system), self._template.as_read),
            head_ids=head_ids,
            head_characters=len(head) - len(rest),
        )

    def _plain_markers(self, text: str, system: str) -> tuple[str, ...]:
        """The template's plain-text markers in a judge's prompt and in longer conversations."""
        from jinja2 import TemplateError

        texts = [text.replace(system.strip(), placeholder(0)) if system.strip() else text]
        turns = [
            {"role": role, "content": placeholder(0)} for role in ("user", "assistant", "user")
        ]
        for first in ({"role": "system", "content": placeholder(0)}, None):
            try:
                texts.append(self._apply_template([first, *turns] if first else turns))
                break
            except TemplateError:
                # The template takes no system message, or only a single question.
                continue
        gaps = [gap for text in texts for gap in text.split(placeholder(0).strip())]
        markers = plain_markers(gaps, self._template.control_text)
        # A judge that repeats such a text would end its thought.
        is_plain = self.end is not None and self.end.token is None
        return (*markers, self.end.marker) if self.end is not None and is_plain else markers

    def _split_head(self, head: str, tail: str) -> tuple[tuple[int, ...], str]:
        """Splits head after its last control token.

        A tokenizer first splits a text at control tokens, so both parts normally have the same ids
        as in one piece. Some tokenizers treat the beginning of a text specially; the probes detect
        them.

        Returns:
            The ids of the first part, and the text of the rest. With such a tokenizer, no ids and
            the whole head.
        """
        ends = [match.end() for match in self._template.control_text.finditer(head)]
        if not ends:
            return (), head
        beginning, rest = head[: ends[-1]], head[ends[-1] :]
        (head_ids,) = self._template.encode([beginning])
        for probe in _PROBES:
            whole, part = self._template.encode([head + probe + tail, rest + probe + tail])
            if whole != head_ids + part:
                return (), head
        return tuple(head_ids), rest

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        return self._template.apply(
            [message for message in messages if message["content"]],
            add_generation_prompt=True,
            **self._use.variables,
        )

    def label_tokens(self, prompt: Prompt) -> LabelTokens:
        """Finds the tokens of A and B at the place where the judge answers.

        `encode("A")[0]` may be the token that begins a text, and "A" after a space is another
        token. So each label is encoded after the whole prompt: it must be one token there, also
        with "]]" after it.

        Raises:
            StartupError: A label is not a single token there, both labels are the same token, or
                the chat template cannot hold a judge's prompt.
        """
        template = self._template
        text = self.frame(prompt.system).filled([prompt.user]) + prompt.prefill
        base = template.encode([text])[0]
        ids = []
        for label in ("A", "B"):
            alone, closed = template.encode([text + label, text + label + "]]"])
            single = alone[: len(base)] == base and len(alone) == len(base) + 1
            if not single or closed[: len(alone)] != alone or alone[-1] in template.control_ids:
                raise StartupError(
                    f'the label "{label}" is not a single token of this judge after its prompt'
                    + (f' and the prefill "{prompt.prefill}"' if prompt.prefill else "")
                    + '; set another SCOPE_PREFILL ("[[" suits most models) or another SCOPE_MODEL'
                )
            ids.append(alone[-1])
        if ids[0] == ids[1]:
            raise StartupError("this judge has one token for both labels, A and B")
        return LabelTokens(a=ids[0], b=ids[1])
