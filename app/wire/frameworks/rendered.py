"""Takes texts apart that a policy's chat template has rendered, as some trainers send them."""

import re
from collections.abc import Sequence
from typing import cast

from app.core.comparison import Role, Turn
from app.wire.requests import encodable
from app.wire.rewards import checked

# Formats of chat templates: role, text, and the end of the turn. The last turn may be open.
_FORMATS = (
    # ChatML: Qwen and many others.
    re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\s*|\Z)", re.DOTALL),
    # Llama 3.
    re.compile(
        r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n(.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL
    ),
    # Gemma.
    re.compile(r"<start_of_turn>(\w+)\n(.*?)(?:<end_of_turn>\s*|\Z)", re.DOTALL),
)
# Texts that end a response.
_ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "</s>"),
    *("<end_of_turn>", "<eos>", "<|eos|>", "<|end|>", "<|return|>"),
)
_BEGINNING = re.compile(r"\s*(?:<s>|<bos>|<\|begin_of_text\|>|<\|endoftext\|>)*\s*")
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "model": "assistant"}


def rendered(prompt: str) -> tuple[Turn, ...]:
    """The conversation of a rendered prompt, without the turn that the policy is to write.

    A prompt of no known format is one turn of the user, as it is. The judge neutralises its own
    control tokens and markers in it, as in every question.

    Raises:
        ValueError: The prompt is blank, or not valid Unicode.
    """
    text = encodable(prompt)
    begun = _BEGINNING.match(text)
    conversation = text[begun.end() :] if begun else text
    for pattern in _FORMATS:
        turns = _turns(conversation, pattern)
        if any(turn.role == "user" for turn in turns):
            return checked(tuple(turns))
    return checked((Turn("user", text),))


def response_in_query(query: str, prompt: str) -> str | None:
    """The part of a query behind its prompt; None if it does not begin with the prompt."""
    # A tokenizer may add or drop blanks at the beginning of a text.
    query, prompt = query.lstrip(), prompt.lstrip()
    return query[len(prompt) :] if query.startswith(prompt) else None


def without_end(response: str, end_markers: Sequence[str]) -> str:
    """A response without the markers at its end, and without blanks around it.

    Args:
        response: The response.
        end_markers: Markers besides the common ones.
    """
    markers = (*_ENDS, *end_markers)
    end = len(response)
    while True:
        while end and response[end - 1].isspace():
            end -= 1
        marker = next((each for each in markers if response.endswith(each, 0, end)), "")
        if not marker:
            return response[:end].lstrip()
        end -= len(marker)


def _turns(text: str, pattern: re.Pattern[str]) -> list[Turn]:
    """The turns of a text that consists of nothing else; none otherwise."""
    turns, at = list[Turn](), 0
    while at < len(text):
        match = pattern.match(text, at)
        role = _ROLES.get(match[1]) if match else None
        if match is None or role is None:
            return []
        at = match.end()
        # An open turn of the assistant is the one that the policy writes.
        is_open = role == "assistant" and match.end(2) == len(text)
        if match[2].strip() and not is_open:
            turns.append(Turn(cast(Role, role), match[2].strip()))
    return turns
