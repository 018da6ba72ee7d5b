"""Renders prompts and conversations to token ids, in which users' texts stay plain text."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from app.core.comparison import Turn
from app.core.errors import InvalidComparisonError, RequestError, StartupError
from app.judges.engines.chat_template import ChatTemplate, Frame, Framed, placeholder
from app.judges.engines.markers import plain_markers
from app.judges.engines.thinking import PLAIN, EndOfThought, UseOfTemplate
from app.ports import ANY_LENGTH, Conversation, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The simplest conversation, with which a start tests a reward model.
PROBE: Conversation = (Turn("user", "Which is larger, 2 or 1?"), Turn("assistant", "2"))
# Callers choose the roles of conversations, so the number of cached frames is bounded.
_MOST_FRAMES = 256


class LabelTokens(NamedTuple):
    """The token ids of the labels A and B at the place where the judge answers."""

    a: int
    b: int


def load_tokenizer(folder: str) -> "PreTrainedTokenizerBase":
    """Loads the tokenizer of a folder or Hugging Face id, which must have a chat template."""
    try:
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
        max_prompt_tokens: Longest prompt in tokens; a longer one is an error and is never cut. An
            engine that learns it later sets it then.
        use: Variables of the chat template, and whether the judge thinks. If it does, prompts end
            behind an empty thought, where its label is read, or where its thought begins.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        max_prompt_tokens: int = ANY_LENGTH,
        use: UseOfTemplate = PLAIN,
    ) -> None:
        self._template = ChatTemplate(tokenizer)
        self._use = use
        self.max_prompt_tokens = max_prompt_tokens
        self.end = EndOfThought.find(self._template, use.think_end) if use.thinks else None
        # The frame around user messages, by system message; raises StartupError if the chat
        # template fails, or does not use the user message exactly once.
        self.frame = lru_cache(self._new_frame)

    def tokens_after_thought(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens between the end that a judge writes to its thought and its label, if any."""
        if self.end is None:
            return ()
        return self.end.tokens_after(self._template, prompt.prefill)

    def token_ids(
        self, prompts: Sequence[Prompt], *, thinks_next: bool = False
    ) -> list[list[int] | RequestError]:
        """Renders prompts in one batch; see `ChatTemplate.tokenized`.

        Args:
            thinks_next: Whether the prompts end where the judge's thought begins.
        """
        return self._template.tokenized(
            [
                (
                    self.frame(prompt.system, thinks_next=thinks_next),
                    [prompt.user],
                    "" if thinks_next else prompt.prefill,
                )
                for prompt in prompts
            ],
            max_prompt_tokens=self.max_prompt_tokens,
        )

    def chat_frame(self, system: str) -> str:
        """The text that the chat template puts around a user message; raises as `frame`."""
        return self.frame(system).filled(["{user}"])

    def _new_frame(self, system: str, *, thinks_next: bool = False) -> Frame:
        from jinja2 import TemplateError

        user = {"role": "user", "content": placeholder(0)}
        try:
            text = self._apply_template([{"role": "system", "content": system}, user])
            if system.strip() not in text:
                raise TemplateError("the system message is left out")
        # Not a TemplateError if a variable has the name of an argument of transformers.
        except (TemplateError, TypeError, ValueError):
            # Gemma and others take no system message: it is put in front of the question.
            user["content"] = f"{system}\n\n{user['content']}"
            try:
                text = self._apply_template([user])
            except (TemplateError, TypeError, ValueError) as exc:
                raise StartupError(f"this judge's chat template fails: {exc}") from exc
        frame = self._template.frame(
            text,
            1,
            behind="" if self.end is None or thinks_next else self.end.text,
            markers=self._plain_markers(text, system),
        )
        if frame is None:
            raise StartupError("this judge's chat template does not use a message exactly once")
        if self.end is not None and self.end.marker in text.rpartition(placeholder(0).strip())[2]:
            raise StartupError(
                "this judge's chat template ends the thought before it begins: change "
                "SCOPE_CHAT_TEMPLATE_KWARGS, or set SCOPE_SCORING=labels"
            )
        return frame

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

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        return self._template.apply(
            [message for message in messages if message["content"]],
            **{**self._use.variables, "add_generation_prompt": True},
        )

    def label_tokens(self, prompt: Prompt) -> LabelTokens:
        """Finds the tokens of A and B at the place where the judge answers.

        `encode("A")[0]` may be the token that begins a text, and "A" after a space is another
        token. So each label is encoded after the whole prompt: it must be one token there, also
        with "]]" after it, and both must differ. Otherwise the start fails.
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


class ConversationRenderer:
    """Renders conversations for one reward model.

    The chat template is rendered once for each sequence of roles, with placeholders as the turns.
    No text can therefore reach the template's own logic, and a conversation without such text has
    exactly the official tokens. The template writes all tokens, also the one that begins a text.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, max_prompt_tokens: int) -> None:
        self._template = ChatTemplate(tokenizer)
        self._max_prompt_tokens = max_prompt_tokens
        # The frame of conversations with these roles; an error if they have none.
        self.frame = lru_cache(maxsize=_MOST_FRAMES)(self._new_frame)

    def token_ids(self, conversations: Sequence[Conversation]) -> list[list[int] | RequestError]:
        """Renders conversations in one batch; see `ChatTemplate.tokenized`.

        A conversation whose roles the template does not take is an `InvalidComparisonError`.
        """

        def framed(conversation: Conversation) -> Framed | InvalidComparisonError:
            frame = self.frame(tuple(turn.role for turn in conversation))
            if isinstance(frame, InvalidComparisonError):
                return frame
            return frame, [turn.content for turn in conversation], ""

        return self._template.tokenized(
            list(map(framed, conversations)), max_prompt_tokens=self._max_prompt_tokens
        )

    def _new_frame(self, roles: tuple[str, ...]) -> Frame | InvalidComparisonError:
        from jinja2 import TemplateError

        turns = [
            {"role": role, "content": placeholder(number)} for number, role in enumerate(roles)
        ]
        try:
            text = self._template.apply(turns)
        except TemplateError as exc:
            return _not_taken(roles, f"it fails: {exc}")
        frame = self._template.frame(text, len(roles))
        return frame or _not_taken(roles, "it leaves out a turn, or writes one twice")


def chat_frame_of(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Returns the text of the chat template around a question and a response."""
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
