"""The end of a judge's thought: its spelling, and the tokens between it and the label."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.errors import StartupError
from app.judges.engines.chat_template import ChatTemplate
from app.settings import Settings

# The ends of thoughts of common models, as their chat templates or tokenizers have them.
_ENDS = (
    "</think>",
    "[/THINK]",
    "</thinking>",
    "</thought>",
    "</reasoning>",
    "<|end_of_thought|>",
    "<|END_THINKING|>",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UseOfTemplate:
    """The use that a judge makes of its chat template.

    Args:
        given: Variables of the template that the settings set.
        thinks: Whether the judge thinks before its label.
        think_end: The text behind a thought; empty to look for a usual one.
    """

    given: Mapping[str, object] = field(default_factory=dict)
    thinks: bool = False
    think_end: str = ""

    @classmethod
    def of(cls, settings: Settings) -> "UseOfTemplate":
        return cls(
            given=settings.chat_template_kwargs,
            thinks=settings.scoring == "thoughts",
            think_end=settings.think_end,
        )

    @property
    def variables(self) -> dict[str, object]:
        """The variables of the template."""
        # Without `enable_thinking`, a model that can think begins with a thought and no label.
        return {"enable_thinking": self.thinks, **self.given}


PLAIN = UseOfTemplate()


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfThought:
    """The text behind a thought.

    Args:
        text: Text between the thought and the prefill: the marker, and the blanks or control tokens
            that the template puts behind it.
        marker: The beginning of `text`, which the model writes itself; a thought ends there.
        token: Id of the marker if it is one control token. Otherwise the marker is plain text, and
            users' texts must not contain it.
    """

    text: str
    marker: str
    token: int | None

    @classmethod
    def find(cls, template: ChatTemplate, given: str = "") -> "EndOfThought":
        """Finds the end of thought of a model: the given text, or a usual one if it is empty."""
        text = given or _usual_end(template)
        first = template.control_text.match(text)
        if first is None:
            return cls(text=text, marker=text.rstrip(), token=None)
        (ids,) = template.encode([first[0]])
        return cls(text=text, marker=first[0], token=ids[0])

    @property
    def stops(self) -> dict[str, list[Any]]:
        """The parameters of vLLM with which a thought ends there."""
        return {"stop": [self.marker]} if self.token is None else {"stop_token_ids": [self.token]}

    def is_reached(self, finish_reason: object, stop_reason: object) -> bool:
        """Whether the model wrote the end of its thought, and not the end of its turn."""
        return finish_reason == "stop" and stop_reason in (self.marker, self.token)

    def tokens_after(self, template: ChatTemplate, prefill: str) -> tuple[int, ...]:
        """The tokens between the marker and the label.

        If they depended on the marker, they could not follow what a model wrote.
        """
        whole, marker = template.encode([self.text + prefill, self.marker])
        if whole[: len(marker)] != marker:
            raise StartupError(
                f"the tokens of the end of thought {self.text!r} and the prefill {prefill!r} run "
                "into each other: begin SCOPE_PREFILL with a line break, or leave it empty"
            )
        return tuple(whole[len(marker) :])


def _usual_end(template: ChatTemplate) -> str:
    source = str(template.tokenizer.chat_template)
    added = {str(token) for token in template.tokenizer.added_tokens_decoder.values()}
    for marker in _ENDS:
        if marker not in added and marker not in source:
            continue
        # Templates spell line breaks as "\n" in two characters.
        for blanks, spelled in (("\n\n", "\\n\\n"), ("\n", "\\n")):
            if marker + blanks in source or marker + spelled in source:
                return marker + blanks
        return marker
    raise StartupError(
        "this judge has no end of thought such as </think> in its tokenizer or chat template: set "
        "SCOPE_THINK_END to the text with which it ends its thoughts, or SCOPE_SCORING=labels for "
        "a judge that does not think"
    )
