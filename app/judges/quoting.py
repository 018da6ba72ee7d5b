"""Quotes texts that imitate a heading of the prompt, so that no text can leave its section.

If any line of a text resembles a heading, each line of the text gets the prefix "> ". Then none of
its lines begins like a heading. All other texts stay unchanged.

A line resembles a heading if it begins with the heading's words after both are normalized.
Normalization ignores case, punctuation, emphasis, tags, HTML entities, accents, invisible
characters, small capitals, and the most common letters that look Latin. A list number or letter
("2.", "b)") before the words is ignored, too.

A turn's heading ("### User:", "Reply 2:") is one ordinary word. A line resembles it only if a colon
or the end of the line follows, possibly after closing punctuation ("[User]", "== User ==").

These headings are not recognized: in other words ("The other answer:"), in another language, in
less common lookalike letters, in the middle of a line, or stretched over thousands of punctuation
characters.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Part of a judge's fingerprint. Raise it with every change of which texts are quoted, or how.
FENCE_VERSION = 2
FENCE = "> "
# If the heading's last word has at least so many letters, it also matches as the beginning of a
# longer word ("Answers"). Shorter words must match exactly: "Response A" is not "Response about".
_LONG_WORD = 4
# Emphasis can occur inside words, and the pattern would take "_" for a letter.
_MARKUP = "*_`~"
# The characters that end a line for str.splitlines.
_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
# Invisible characters that Unicode calls letters.
_FILLERS = "\u115f\u1160\u3164\uffa0"
# Categories of most code points: unassigned, private use, surrogate.
_UNASSIGNED = ("Cn", "Co", "Cs")
# Lower-case Cyrillic, Greek and Armenian letters that look Latin in lower or upper case.
_LOOKALIKES = dict(
    zip(
        "\u0430\u0432\u0441\u0501\u0435\u043d\u04bb\u0456\u0458\u043a\u04cf\u043c\u043e\u0440"
        "\u051b\u0455\u0442\u0443\u051d\u0445\u0585\u0578\u057d\u03b1\u03b2\u03b5\u03b7\u03b9"
        "\u03ba\u03bc\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03b3",
        "abcdehhijklmopqstywxonuabehikmnoptuxy",
        strict=True,
    )
)
# Small capitals, and letters with strokes, hooks and tails.
_LATIN_NAME = re.compile(
    r"LATIN (?:(?:SMALL|CAPITAL) )?LETTER (?:(?:SMALL CAPITAL|DOTLESS|SCRIPT) )?"
    r"([A-Z])(?: WITH .+)?"
)
# Characters that expand to more letters are dropped: Arabic phrases of 18 and 8 letters, which
# would make a text many times as expensive as any other.
_MOST_LETTERS = 7
# Characters that are searched in one call, because other threads run only between two calls; and
# the longest part of a text that can be a heading.
_PIECE, _LONGEST = 2**16, 2**12
# Characters that are translated in one call; non-ASCII characters cost ten times as much here as
# in a search.
_TRANSLATED = 2**13
_TAG = re.compile(r"</?[a-z!][^<>\n]*+>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,32}|#[xX][0-9a-fA-F]{1,32}|[a-zA-Z][a-zA-Z0-9]{1,31});?")
# Allowed before a heading on its line: brackets, "###", "2.", "(3)", "b)", "IV.". The quantifiers
# here and below are possessive wherever backtracking could take more than linear time.
_LEAD = r"\n[^\w\n]*+(?:(?:\d++[^\w\n]|[^\W\d]{1,4}+[.)])[^\w\n]*+){0,16}"
# Allowed between two letters of a word: "Assist-ant".
_IN_WORD = r"[^\w\s]*+"
# Required after a template's heading of one word: punctuation or the end of the line. "Question:"
# and "</answer>" match, "Question everything" does not.
_SIGN = r"[^\S\n]*+(?:[^\w\s]|\n|\Z)"
# Required after a turn's heading: a colon or the end of the line, possibly after closing
# punctuation. "User:" and "[System]" match; "User-friendly", "system." and "System.out" do not.
_TURN_END = r"[^\S\n]*+(?:[])}>|\"'#=]|--+)*+[^\S\n]*+(?:[:\u2236\ua789]|\n|\Z)"


class _Readings(dict[int, str | None]):
    """Table for str.translate: character -> its normalized form; None deletes the character.

    An entry is computed when the character is first looked up.
    """

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        if unicodedata.category(character) in _UNASSIGNED:
            # Not kept in the table, because there are so many of them.
            return None
        reading = _reading(character)
        self[code] = reading
        return reading


def _reading(character: str) -> str | None:
    if character in _ENDS:
        return "\n"
    if character == "\t":
        return character
    # One character at a time: normalizing a whole text sorts its marks, which can take quadratic
    # time.
    parts = unicodedata.normalize("NFKD", character)
    # Remove marks before casefolding, because one of them casefolds to a letter.
    bare = "".join(part for part in parts if unicodedata.category(part)[0] not in "CM")
    parts = unicodedata.normalize("NFKD", bare.casefold())
    if len(parts) > _MOST_LETTERS:
        return None
    return "".join(map(_plain_letter, parts)) or None


def _plain_letter(part: str) -> str:
    if part in _MARKUP or part in _FILLERS or unicodedata.category(part)[0] in "CM":
        return ""
    if part in _LOOKALIKES:
        return _LOOKALIKES[part]
    named = _LATIN_NAME.fullmatch(unicodedata.name(part, ""))
    return named[1].lower() if named else part


_READINGS = _Readings()
# A text can contain a million entities, but only a few different ones.
_character = lru_cache(maxsize=4096)(html.unescape)


@dataclass(frozen=True, slots=True)
class Fence:
    """Quotes the texts that contain a line like a heading."""

    pattern: re.Pattern[str]

    @classmethod
    def against(
        cls, headings: Sequence[str], markers: Sequence[str] = (), *, turns: Sequence[str] = ()
    ) -> "Fence":
        """Makes the fence against the given headings; those without a word are ignored.

        Args:
            headings: Beginnings of lines. A number in a heading matches any number.
            markers: Texts that begin a section in the middle of a line.
            turns: Headings of turns and replies: one word, possibly with a number.
        """
        lines = [pattern for text in headings if (pattern := _words(text))]
        lines += [_in_any_spelling(_parts(text)) + _TURN_END for text in turns]
        anywhere = [pattern for text in markers if (pattern := _words(text))]
        if lines:
            anywhere.insert(0, f"{_LEAD}(?:{'|'.join(lines)})")
        return cls(re.compile("|".join(anywhere) or r"(?!)"))

    @classmethod
    def of_literals(cls, literals: Sequence[str], *, turns: Sequence[str] = ()) -> "Fence":
        """Makes the fence of a template, from its text before, between and after placeholders."""
        lines = [literal.splitlines() or [""] for literal in literals]
        # The first line after a placeholder continues the last line of the placeholder's text.
        markers = [first for first, *_ in lines[1:]]
        headings = lines[0] + [line for _, *rest in lines[1:] for line in rest]
        return cls.against(headings, markers, turns=turns)

    def around(self, text: str) -> str:
        """The text, quoted if any of its lines resembles a heading."""
        return quoted(text) if self.is_needed(text) else text

    def is_needed(self, text: str) -> bool:
        """Whether any line of the text resembles a heading; takes time linear in its length."""
        if "&" in text:
            return any(map(self._finds, _plain_texts(text)))
        plain = _plain(text)
        # Search again without tags only if there may be any.
        return self._finds(plain) or ("<" in plain and self._finds(_without_tags(plain)))

    def _finds(self, plain: str) -> bool:
        if len(plain) <= _PIECE:
            return self.pattern.search(plain) is not None
        return any(
            self.pattern.search(plain, start, start + _PIECE + _LONGEST)
            for start in range(0, len(plain), _PIECE)
        )


def quoted(text: str) -> str:
    """The text with FENCE before each line; every line end of str.splitlines counts."""
    return "".join(
        "".join(FENCE + line for line in piece.splitlines(keepends=True))
        for piece in _in_whole_lines(text)
    )


def _in_whole_lines(text: str) -> Iterator[str]:
    """Splits a long text into pieces of whole lines."""
    start, end = 0, _PIECE
    while end < len(text):
        behind = max(text.rfind(line_end, start, end) for line_end in _ENDS) + 1
        if behind > start and text[behind - 1 : behind + 1] != "\r\n":
            yield text[start:behind]
            start = behind
        end += _PIECE
    yield text[start:]


def _plain_texts(text: str) -> Iterator[str]:
    """The normalized readings of a text: with and without entities resolved, and without tags."""
    texts = [text]
    if "&" in text:
        texts.append(
            "".join(
                _ENTITY.sub(lambda entity: _character(entity[0]), piece)
                for piece in _cut_before(text, "&")
            )
        )
    for reading in texts:
        plain = _plain(reading)
        yield plain
        # A separate reading, because a tag may be the heading itself.
        if "<" in plain:
            yield _without_tags(plain)


def _without_tags(plain: str) -> str:
    return "".join(_TAG.sub("", piece) for piece in _cut_before(plain, "<"))


def _cut_before(text: str, sign: str) -> Iterator[str]:
    """Splits a long text before occurrences of a character.

    No match of a pattern crosses a cut if the character can only be the first one of a match.
    """
    start, end = 0, _PIECE
    while end < len(text):
        cut = text.rfind(sign, start + 1, end)
        if cut > 0:
            yield text[start:cut]
            start = cut
        end += _PIECE
    yield text[start:]


def _plain(text: str) -> str:
    """The normalized text: lower case, without markup, and with a line feed before each line."""
    if len(text) <= _TRANSLATED:
        return "\n" + text.translate(_READINGS)
    pieces = (text[start : start + _TRANSLATED] for start in range(0, len(text), _TRANSLATED))
    return "\n" + "".join(piece.translate(_READINGS) for piece in pieces)


def _words(text: str) -> str:
    """The pattern of a heading and of what must follow; empty if the heading has no word."""
    words = _parts(text)
    named = [word for word in words if not word.isdecimal()]
    if not named:
        return ""
    pattern = _in_any_spelling(words, ending=r"(?:\W*+s)?")
    if len(named) == 1:
        return pattern + _SIGN
    return pattern if len(words[-1]) >= _LONG_WORD else pattern + r"(?!\w)"


def _in_any_spelling(words: Sequence[str], *, ending: str = "") -> str:
    """The pattern of words with any punctuation between them; `ending` may follow each word."""
    return r"\W*+".join(
        r"\d++" if word.isdecimal() else _IN_WORD.join(word) + ending for word in words
    )


def _parts(text: str) -> list[str]:
    """The words and numbers of a normalized heading."""
    parts = re.findall(r"[^\W\d]+|\d+", _plain(text))
    # "Assistant A's" has the words Assistant, A and s. The s is optional in every heading.
    return [part for i, part in enumerate(parts) if part != "s" or i == 0]
