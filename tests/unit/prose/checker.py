"""Finds banned shapes of prose in Python and Markdown, and Markdown lines over 100 columns."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.unit.docs import markdown
from tests.unit.docs.markdown import ROOT

LONGEST_LINE = 100

# Shape -> how it is found in a sentence.
BANNED: dict[str, re.Pattern[str]] = {
    "subject clause": re.compile(r"^(?:What|Who|Whose|Whom|Whoever|Whatever|Of)\b(?!.*\?$)"),
    "is told": re.compile(r"\b(?:is|are|was|were|be|been|being)\s+told\b"),
    # To stand for something is an ordinary verb.
    "stands": re.compile(r"\b(?:stands?|stood)\b(?!\s+for\b|-)"),
    "goes before": re.compile(r"\b(?:go|goes|going|gone|went)\s+before\b"),
    # A docstring must name its argument: "Name of the set.", not only "as the store's".
    "fragment": re.compile(
        r"^(?:As|By|For|From|Over|That|To|Until|Where|Which|With|Without|How (?:many|much))\b"
        r"(?:\s+[^\s,:]+){0,4}\.$"
    ),
}

# The lines that may keep a banned shape, at most ten: (path, text that the sentence contains).
EXCEPTIONS: tuple[tuple[str, str], ...] = ()

_SENTENCE_END = re.compile(r"(?<=[.!?:;])[\"')\]*_]*\s+")
# An argument of a Google-style docstring, an item of a list or a number before it.
_ITEM = re.compile(r"^\s*(?:[-*+]\s+|\d+\.\s+|\*{0,2}\w+:\s+)")
_OPENING = "\"'([*_> "
_CODE = re.compile(r"(`+).+?\1")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ONLY_A_LINK = re.compile(
    r"\s*(?:[-*]\s+)?(?:!?\[[^\]]*\]\([^)]*\)|\[[^\]]+\]:\s*\S+|<?https?://\S+)[.,]?$"
)
# Shorter strings are names, keys and patterns.
_LEAST_WORDS_OF_A_MESSAGE = 4


class Fault(NamedTuple):
    """One banned shape; prints as `app/core/x.py:3: stands: The row stands here.`"""

    path: str
    line: int
    shape: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.shape}: {self.text}"


class Passage(NamedTuple):
    """Prose that belongs together.

    Args:
        line: Where it begins, from 1.
        text: Several lines if sentences may run over their ends.
        message: Whether it is a message, which may begin in lower case.
    """

    line: int
    text: str
    message: bool = False


def files() -> list[Path]:
    """Every Python and Markdown file of the repository."""
    folders = (ROOT / name for name in markdown.FOLDERS)
    return sorted([*markdown.files(), *(file for each in folders for file in each.rglob("*.py"))])


def faults_of(file: Path) -> list[Fault]:
    """Every fault of a file of the repository, without the exceptions."""
    path = file.relative_to(ROOT).as_posix()
    found = faults(path, file.read_text(encoding="utf-8"))
    return [
        fault
        for fault in found
        if not any(path == where and text in fault.text for where, text in EXCEPTIONS)
    ]


def faults(path: str, text: str) -> Iterator[Fault]:
    """Yields every fault of a text, in order of lines for each kind of passage."""
    if path.endswith(".md"):
        yield from _long_lines(path, text)
        passages = _of_markdown(text)
    else:
        passages = _of_python(text, messages=path.startswith(("app/", "clients/")))
    for passage in passages:
        for line, sentence in _sentences(passage):
            for shape, pattern in BANNED.items():
                if pattern.search(sentence):
                    yield Fault(path, line, shape, sentence)


def _long_lines(path: str, text: str) -> Iterator[Fault]:
    for number, line in enumerate(text.splitlines(), start=1):
        exempt = line.lstrip().startswith("|") or _ONLY_A_LINK.match(line)
        if len(line) > LONGEST_LINE and not exempt:
            yield Fault(path, number, f"over {LONGEST_LINE} columns", f"{len(line)} columns")


def _sentences(passage: Passage) -> Iterator[tuple[int, str]]:
    """Yields each sentence with its line; an item of a list begins a sentence."""
    begun, lines = passage.line, list[str]()
    for number, line in enumerate(passage.text.split("\n"), start=passage.line):
        item = _ITEM.match(line)
        if item or not line.strip():
            yield from _split(begun, lines, passage.message)
            begun, lines = number, []
        lines.append(line[item.end() :] if item else line)
    yield from _split(begun, lines, passage.message)


def _split(begun: int, lines: list[str], message: bool) -> Iterator[tuple[int, str]]:
    joined = _CODE.sub("`x`", "\n".join(lines))
    place = 0
    for sentence in _SENTENCE_END.split(joined):
        place = joined.index(sentence, place)
        line = begun + joined.count("\n", 0, place)
        shown = " ".join(sentence.split()).lstrip(_OPENING)
        yield line, shown[:1].upper() + shown[1:] if message else shown
        place += len(sentence)


def _of_markdown(text: str) -> Iterator[Passage]:
    """Yields paragraphs, list items and cells of tables, without code and targets of links."""
    begun, paragraph = 1, list[str]()
    for line in markdown.lines(text):
        shown = _LINK.sub(r"\1", _CODE.sub("`x`", line.text)).lstrip("# ")
        row = line.text.lstrip().startswith("|")
        if line.fenced or row or line.text.startswith("#") or not shown.strip():
            yield Passage(begun, "\n".join(paragraph))
            begun, paragraph = line.number + 1, []
            if row:
                yield from (Passage(line.number, cell.strip()) for cell in shown.split("|"))
            elif not line.fenced:
                yield Passage(line.number, shown)
        else:
            paragraph.append(shown)
    yield Passage(begun, "\n".join(paragraph))


def _of_python(source: str, *, messages: bool) -> Iterator[Passage]:
    """Yields docstrings, blocks of comments and, if asked for, strings that read as messages."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(id(first.value))
                if isinstance(first.value.value, str):
                    yield Passage(first.lineno, first.value.value)
    yield from _comments(source)
    if messages:
        yield from _messages(tree, docstrings)


def _messages(tree: ast.AST, docstrings: set[int]) -> Iterator[Passage]:
    """Yields strings that read as messages; the values of an f-string count as one word each."""
    parts = set(docstrings)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            texts = (each.value if isinstance(each, ast.Constant) else "x" for each in node.values)
            text = "".join(map(str, texts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if id(node) not in parts and len(text.split()) >= _LEAST_WORDS_OF_A_MESSAGE:
            yield Passage(node.lineno, text, message=True)


def _comments(source: str) -> Iterator[Passage]:
    """Yields comments; those on lines of their own that follow each other are one passage."""
    begun, block, last = 0, list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("#!", "# noqa", "# type:")):
            continue
        number, text = token.start[0], token.string.lstrip("# ")
        alone = not token.line[: token.start[1]].strip()
        if not alone:
            yield Passage(number, text)
            continue
        if number != last + 1:
            yield Passage(begun, "\n".join(block))
            begun, block = number, []
        block.append(text)
        last = number
    yield Passage(begun, "\n".join(block))
