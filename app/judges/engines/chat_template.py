"""A model's chat template and tokenizer, and the tokens that control the model."""

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from app.judges.engines.markers import ZERO_WIDTH_SPACE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Some templates contain the current date: a fixed one keeps scores the same on every day.
_DATE = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)


class ChatTemplate:
    """The chat template of a model.

    Args:
        tokenizer: Tokenizer with a chat template.
    """

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
        """Renders messages.

        Args:
            messages: Objects with `role` and `content`.
            options: Further variables of the template.

        Raises:
            jinja2.TemplateError: The template does not take these messages.
        """
        text = self.tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            **{
                "date_string": _DATE.strftime("%d %b %Y"),
                "strftime_now": _DATE.strftime,
                **options,
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
