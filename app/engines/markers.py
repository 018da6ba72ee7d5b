"""Turn markers that are plain text in a judge's chat template, and their removal from texts.

Many templates begin a turn with a control token; a tokenizer reads it as one token, and
`app.engines.rendering` keeps texts from adding one. Others begin a turn with plain text: "[INST]",
"USER:", "### Instruction:", "<|user|>" where the tokenizer has no such token. To the model a text
that holds such a marker begins a new turn, though none of its tokens is special.
"""

import re
from collections.abc import Callable, Iterable

# Put into a marker inside a text: invisible, and no marker any more.
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
    """Finds the markers in what a chat template puts around messages.

    Markers are text in brackets, and lines of at most four words with a colon at their end; where
    a gap has no control token at all, also headings with "#". Other words are none: a template
    with control tokens has "user" and "assistant" behind them, which stand in every other text.

    Args:
        gaps: The template's own text before, between and behind messages.
        control: Matches every control token.

    Returns:
        Each marker once, as the template spells it.
    """
    found: dict[str, None] = {}
    for gap in gaps:
        pieces = control.split(gap)
        for piece in pieces:
            for match in _BRACKETED.finditer(piece):
                if re.search(r"[^\W\d_]", match[0]):
                    found[match[0]] = None
            for line in _BRACKETED.sub("\n", piece).splitlines():
                line = line.strip()
                named = _NAMED.fullmatch(line) or (len(pieces) == 1 and _HEADING.fullmatch(line))
                if named and re.search(r"[^\W\d_]", line):
                    found[line] = None
    return tuple(found)


class MarkerBreaker:
    """Breaks a judge's plain markers in texts.

    A marker is found in any case of its letters, and with blanks between its signs and words:
    "[ /inst ]" and "Assistant :" count, and any number of "#". Not found are markers of other
    templates, and those in which letters or signs are replaced by others that only look alike;
    a model has not learned to read these as the end of a turn.

    Args:
        markers: As from `plain_markers`.
        read: What the judge's tokenizer makes of a text before it cuts the text into tokens.
    """

    def __init__(self, markers: Iterable[str], read: Callable[[str], str]) -> None:
        longest_first = sorted(set(markers), key=len, reverse=True)
        self._pattern = re.compile(
            "|".join(map(_in_any_spelling, longest_first)) or r"(?!)", re.IGNORECASE
        )
        self._is_needed = bool(longest_first)
        self._read = read

    def finds(self, text: str) -> bool:
        """Whether the judge would read a marker in the text."""
        return self._is_needed and self._pattern.search(self._read(text)) is not None

    def broken(self, text: str) -> str:
        """The text with a zero-width space after the first letter of each marker."""
        return self._pattern.sub(_with_zero_width_space, text)


def _with_zero_width_space(match: re.Match[str]) -> str:
    return re.sub(r"[^\W\d_]", rf"\g<0>{ZERO_WIDTH_SPACE}", match[0], count=1)


def _in_any_spelling(marker: str) -> str:
    """The pattern of a marker's words and signs, with blanks between them."""
    parts = []
    for part in re.findall(r"\w+|#+|[^\w\s]", marker):
        if part == ":":
            parts.append(_COLON)
        else:
            parts.append("#++" if part.startswith("#") else re.escape(part))
    # "superuser:" holds no "user:", nor "### Userland" "### User". A row of "#" is looked at once,
    # not again from each of them.
    before = r"(?<!\w)" if re.match(r"\w", marker) else "(?<!#)" if marker.startswith("#") else ""
    behind = r"(?!\w)" if re.search(r"\w$", marker) else ""
    return before + _BLANKS.join(parts) + behind
