"""Takes texts apart that a policy's chat template has rendered, as some trainers send them."""

import re
from typing import cast

from app.api.requests.models import encodable
from app.core.comparison import Comparison, Role, Turn
from app.core.errors import InvalidComparisonError
from app.judging.rewards import Group

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
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "</s>",
    "<end_of_turn>",
    "<eos>",
    "<|eos|>",
    "<|end|>",
    "<|return|>",
)
# Possessive: it is matched in one pass, and remembers no place to go back to.
_BEGINNING = re.compile(r"\s*+(?:<s>|<bos>|<\|begin_of_text\|>|<\|endoftext\|>)*+\s*+")
# Markers that are removed in one go. Other threads can run in between; it takes a few milliseconds.
_MOST_AT_ONCE = 10_000
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "model": "assistant"}


# Read from the end, so that one pass over the markers finds them all.
_BACKWARDS = "|".join(re.escape(marker[::-1]) for marker in _ENDS)
_AT_END = re.compile(rf"(?:\s|{_BACKWARDS}){{1,{_MOST_AT_ONCE}}}+")


def without_endings(response: str) -> str:
    """A response without the markers with which policies end it, and without blanks around it."""
    backwards, at = response[::-1], 0
    while match := _AT_END.match(backwards, at):
        at = match.end()
    return response[: len(response) - at].lstrip()


def checked(question: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The question; raises ValueError if a turn is blank, or if there is none of the user."""
    try:
        # The checks are those of POST /judge.
        return Comparison(question, ("x",), ("x",)).question
    except InvalidComparisonError as exc:
        raise ValueError(str(exc)) from None


def rendered(prompt: str) -> tuple[Turn, ...]:
    """The conversation of a rendered prompt, without the turn that the policy is to write.

    A prompt of no known format is one turn of the user, as it is. The judge neutralizes its own
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


def group_of_rendered(group: Group) -> Group:
    """A group with rendered texts: its question taken apart, its responses without their markers.

    A question that is a list of messages stays as it is.

    Raises:
        ValueError: The conversation of the question cannot be judged.
    """
    first, *others = group.question
    is_text = not others and first.role == "user"
    return Group(
        question=rendered(first.content) if is_text else group.question,
        responses=tuple(map(without_endings, group.responses)),
        reference=group.reference,
    )


def response_in_query(query: str, prompt: str) -> str | None:
    """The part of a query behind its prompt; None if it does not begin with the prompt."""
    # A tokenizer may add or drop blanks at the beginning of a text.
    query, prompt = query.lstrip(), prompt.lstrip()
    return query[len(prompt) :] if query.startswith(prompt) else None


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
