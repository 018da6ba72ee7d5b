"""Finds the turn markers that are plain text in a chat template, and breaks them in texts.

Many templates begin a turn with a control token. A tokenizer reads it as one token, and
`rendering.py` keeps texts from adding one. Other templates begin a turn with plain text:
"[INST]", "USER:", "### Instruction:", or "<|user|>" if the tokenizer has no such token. To the
model, a text that contains such a marker begins a new turn, although none of its tokens is special.
"""

import re
from collections.abc import Callable, Iterable

# Inserted into a marker, it is invisible and makes the marker ordinary text.
ZERO_WIDTH_SPACE = "\u200b"
# "[INST]", "<</SYS>>", "<|user|>", "<start_of_turn>", "<|End of Turn|>".
_BRACKETED = re.compile(r"<{1,2}[^\s<>]{1,40}>{1,2}|<\|[^<>\n]{1,40}\|>|\[[^\s\[\]]{1,40}\]")
# "USER:", "### Instruction:", "GPT4 Correct Assistant:"; a longer line is a sentence.
_NAMED = re.compile(r"[^\w\n]*(?:\w+[ \t]+){0,3}\w+[ \t]*:")
# "### Response", without a colon.
_HEADING = re.compile(r"#+[ \t]*(?:\w+[ \t]+){0,3}\w+")
_BLANKS = r"[^\S\n]*+"
_COLON = "[:\uff1a]"


def plain_markers(gaps: Iterable[str], control: re.Pattern[str]) -> tuple[str, ...]:
    """Finds the plain-text markers that a chat template puts around messages.

    A marker is a text in brackets, or a line of at most four words that ends with a colon. If a gap
    has no control token, headings with "#" are markers, too. Bare words are not: a template with
    control tokens has "user" and "assistant" after them, which occur in many ordinary texts.

    Args:
        gaps: The template's own text before, between and after messages.
        control: Pattern that matches every control token.

    Returns:
        Each marker once, as the template spells it.
    """
    markers: dict[str, None] = {}
    for gap in gaps:
        pieces = control.split(gap)
        for piece in pieces:
            for match in _BRACKETED.finditer(piece):
                if re.search(r"[^\W\d_]", match[0]):
                    markers[match[0]] = None
            for line in _BRACKETED.sub("\n", piece).splitlines():
                line = line.strip()
                named = _NAMED.fullmatch(line) or (len(pieces) == 1 and _HEADING.fullmatch(line))
                if named and re.search(r"[^\W\d_]", line):
                    markers[line] = None
    return tuple(markers)


class MarkerBreaker:
    """Breaks a judge's plain markers in texts.

    A marker is found in upper and lower case, with blanks between its words and signs ("[ /inst ]",
    "Assistant :"), and with any number of "#". Markers of other templates are not found, nor
    markers spelled with look-alike characters: a model has not learned to read either as the end of
    a turn.

    Args:
        markers: Markers from `plain_markers`.
        read: The tokenizer's normalization of a text before it is cut into tokens.
    """

    def __init__(self, markers: Iterable[str], read: Callable[[str], str]) -> None:
        longest_first = sorted(set(markers), key=len, reverse=True)
        self._pattern = re.compile(
            "|".join(map(_in_any_spelling, longest_first)) or r"(?!)", re.IGNORECASE
        )
        self._is_needed = bool(longest_first)
        self._read = read

    def finds(self, text: str) -> bool:
        """Whether the normalized text contains a marker."""
        return self._is_needed and self._pattern.search(self._read(text)) is not None

    def broken(self, text: str) -> str:
        """Returns the text with a zero-width space after the first letter of each marker."""
        return self._pattern.sub(_with_zero_width_space, text)


def _with_zero_width_space(match: re.Match[str]) -> str:
    return re.sub(r"[^\W\d_]", rf"\g<0>{ZERO_WIDTH_SPACE}", match[0], count=1)


def _in_any_spelling(marker: str) -> str:
    """The pattern of a marker's words and signs, with optional blanks between them."""
    parts = []
    for part in re.findall(r"\w+|#+|[^\w\s]", marker):
        if part == ":":
            parts.append(_COLON)
        else:
            parts.append("#++" if part.startswith("#") else re.escape(part))
    # "superuser:" does not contain the marker "user:", nor "### Userland" the marker "### User".
    # A run of "#" is matched once, not from each "#" again, so that the time stays linear.
    before = r"(?<!\w)" if re.match(r"\w", marker) else "(?<!#)" if marker.startswith("#") else ""
    behind = r"(?!\w)" if re.search(r"\w$", marker) else ""
    return before + _BLANKS.join(parts) + behind
