"""Keeps a text inside its own section of a prompt: what resembles a heading is quoted.

A text in which any line resembles a heading gets "> " before each of its lines, so that none of
them begins as a heading does. All other texts stay what they are, to the letter.

A line resembles a heading if it begins with the heading's words once both are read alike:
capitals, signs of all kinds, emphasis, tags, HTML entities, accents, characters that nobody sees,
small capitals and the commonest letters that look Latin make no difference, nor does the number or
the letter of a list ("2.", "b)") before the words. A turn's heading ("### User:", "Reply 2:") is
one ordinary word, so a line resembles it only if a colon or the line's end comes next, or closing
signs ("[User]", "== User ==") and then one of the two. A heading in words of its own ("The other
answer:"), in another language, in letters that only look alike beyond the commonest, in the middle
of a line or stretched over thousands of signs is not seen.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Part of a judge's fingerprint: to be raised with every change of which texts are quoted, and how.
FENCE_VERSION = 2
FENCE = "> "
# With more letters behind it, a last word this long resembles the heading, too ("Answers"); a
# shorter one would be the beginning of any word ("Response A" and "Response about").
_LONG_WORD = 4
# Signs of emphasis stand inside words, too, and "_" would count as a letter.
_MARKUP = "*_`~"
# What ends a line for str.splitlines.
_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
# Letters that nobody sees, though no category says so.
_FILLERS = "\u115f\u1160\u3164\uffa0"
# Categories of most of Unicode: unassigned, private, half of a pair.
_UNASSIGNED = ("Cn", "Co", "Cs")
# Small Cyrillic, Greek and Armenian letters that look Latin, or whose capitals do.
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
# A character that stands for more of them is left out: Arabic phrases of 18 and 8 letters, of
# which a text would take many times as long as any other.
_MOST_LETTERS = 7
# So much of a text is read at once, because other threads have their turn only between two calls;
# and the longest stretch of a text that can be a heading.
_PIECE, _LONGEST = 2**16, 2**12
# Likewise; to translate characters outside ASCII takes as long as to search ten times as many.
_TRANSLATED = 2**13
_TAG = re.compile(r"</?[a-z!][^<>\n]*+>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,32}|#[xX][0-9a-fA-F]{1,32}|[a-zA-Z][a-zA-Z0-9]{1,31});?")
# What may stand before a heading on its line: brackets, "###", "2.", "(3)", "b)", "IV.". No
# quantifier here and below gives back what it took where that could cost more than linear time.
_LEAD = r"\n[^\w\n]*+(?:(?:\d++[^\w\n]|[^\W\d]{1,4}+[.)])[^\w\n]*+){0,16}"
# What may stand between two letters of a word: "Assist-ant".
_IN_WORD = r"[^\w\s]*+"
# After a template's heading of one word comes a sign or the line's end: "Question:", "</answer>",
# not "Question everything".
_SIGN = r"[^\S\n]*+(?:[^\w\s]|\n|\Z)"
# After a turn's heading comes a colon or the line's end, maybe behind signs that close a heading:
# "User:", "[System]", not "User-friendly", "system." or "System.out".
_TURN_END = r"[^\S\n]*+(?:[])}>|\"'#=]|--+)*+[^\S\n]*+(?:[:\u2236\ua789]|\n|\Z)"


class _Readings(dict[int, str | None]):
    """What each character is read as, found out when it is first met; None is nothing at all."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        if unicodedata.category(character) in _UNASSIGNED:
            # Not kept, because there are so many of them.
            return None
        reading = _reading(character)
        self[code] = reading
        return reading


def _reading(character: str) -> str | None:
    if character in _ENDS:
        return "\n"
    if character == "\t":
        return character
    # Character by character: putting the marks of a text in order can take quadratic time.
    parts = unicodedata.normalize("NFKD", character)
    # Marks first: one of them is a letter when casefolded.
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
# A text can hold a million entities, and there are few different ones.
_character = lru_cache(maxsize=4096)(html.unescape)


@dataclass(frozen=True, slots=True)
class Fence:
    """Quotes the texts that resemble a heading."""

    pattern: re.Pattern[str]

    @classmethod
    def against(
        cls, headings: Sequence[str], markers: Sequence[str] = (), *, turns: Sequence[str] = ()
    ) -> "Fence":
        """Makes the fence against certain headings; those without a word are left out.

        Args:
            headings: Each the beginning of a line. A number in it stands for any number.
            markers: What begins a section in the middle of a line.
            turns: Headings of turns and replies: one word, maybe with a number.
        """
        lines = [pattern for text in headings if (pattern := _words(text))]
        lines += [_in_any_spelling(_parts(text)) + _TURN_END for text in turns]
        anywhere = [pattern for text in markers if (pattern := _words(text))]
        if lines:
            anywhere.insert(0, f"{_LEAD}(?:{'|'.join(lines)})")
        return cls(re.compile("|".join(anywhere) or r"(?!)"))

    @classmethod
    def of_literals(cls, literals: Sequence[str], *, turns: Sequence[str] = ()) -> "Fence":
        """Makes the fence of a template.

        Args:
            literals: The template's own text before, between and behind its placeholders.
            turns: Headings of turns and replies.
        """
        lines = [literal.splitlines() or [""] for literal in literals]
        # The first line behind a placeholder goes on where the placeholder's text ended.
        markers = [first for first, *_ in lines[1:]]
        headings = lines[0] + [line for _, *rest in lines[1:] for line in rest]
        return cls.against(headings, markers, turns=turns)

    def around(self, text: str) -> str:
        """The text, quoted line by line if any line of it resembles a heading."""
        return quoted(text) if self.is_needed(text) else text

    def is_needed(self, text: str) -> bool:
        """Whether any line of the text resembles a heading; takes time linear in its length."""
        if "&" in text:
            return any(map(self._finds, _plain_texts(text)))
        plain = _plain(text)
        # Most texts have no tag either.
        return self._finds(plain) or ("<" in plain and self._finds(_without_tags(plain)))

    def _finds(self, plain: str) -> bool:
        if len(plain) <= _PIECE:
            return self.pattern.search(plain) is not None
        return any(
            self.pattern.search(plain, start, start + _PIECE + _LONGEST)
            for start in range(0, len(plain), _PIECE)
        )


def quoted(text: str) -> str:
    """The text with the fence before each of its lines, whatever character ended the last."""
    return "".join(
        "".join(FENCE + line for line in piece.splitlines(keepends=True))
        for piece in _in_whole_lines(text)
    )


def _in_whole_lines(text: str) -> Iterator[str]:
    """A long text in pieces; each but the last ends where a line does."""
    start, end = 0, _PIECE
    while end < len(text):
        behind = max(text.rfind(each, start, end) for each in _ENDS) + 1
        if behind > start and text[behind - 1 : behind + 1] != "\r\n":
            yield text[start:behind]
            start = behind
        end += _PIECE
    yield text[start:]


def _plain_texts(text: str) -> Iterator[str]:
    """The ways in which a text may be read: as it is, with entities resolved, and without tags."""
    texts = [text]
    if "&" in text:
        texts.append(
            "".join(
                _ENTITY.sub(lambda entity: _character(entity[0]), piece)
                for piece in _cut_before(text, "&")
            )
        )
    for each in texts:
        plain = _plain(each)
        yield plain
        # Apart, because a tag may be the heading itself.
        if "<" in plain:
            yield _without_tags(plain)


def _without_tags(plain: str) -> str:
    return "".join(_TAG.sub("", piece) for piece in _cut_before(plain, "<"))


def _cut_before(text: str, sign: str) -> Iterator[str]:
    """A long text in pieces; a pattern that has the sign only in its first place crosses no cut."""
    start, end = 0, _PIECE
    while end < len(text):
        cut = text.rfind(sign, start + 1, end)
        if cut > 0:
            yield text[start:cut]
            start = cut
        end += _PIECE
    yield text[start:]


def _plain(text: str) -> str:
    """A text as it is read: small letters, no markup, and each line behind a line feed."""
    if len(text) <= _TRANSLATED:
        return "\n" + text.translate(_READINGS)
    pieces = (text[start : start + _TRANSLATED] for start in range(0, len(text), _TRANSLATED))
    return "\n" + "".join(piece.translate(_READINGS) for piece in pieces)


def _words(text: str) -> str:
    """The pattern of a heading and what must come next; empty where there is no word."""
    words = _parts(text)
    named = [word for word in words if not word.isdecimal()]
    if not named:
        return ""
    pattern = _in_any_spelling(words, ending=r"(?:\W*+s)?")
    if len(named) == 1:
        return pattern + _SIGN
    return pattern if len(words[-1]) >= _LONG_WORD else pattern + r"(?!\w)"


def _in_any_spelling(words: Sequence[str], *, ending: str = "") -> str:
    """The pattern of words with any signs between them; a word may have the ending."""
    return r"\W*+".join(
        r"\d++" if word.isdecimal() else _IN_WORD.join(word) + ending for word in words
    )


def _parts(text: str) -> list[str]:
    """The words and numbers of a heading as it is read."""
    parts = re.findall(r"[^\W\d]+|\d+", _plain(text))
    # "Assistant A's" has the words Assistant, A and s: the last may be missing anywhere.
    return [part for i, part in enumerate(parts) if part != "s" or i == 0]
