"""Real sentences, by the page that they are from; they are the texts of the tuned judge's pairs.

`python -m tests.tuned_judge.sentences` collected them once from this project's pages and from the
documentation of Python 3.11 (its topics and the docstrings of its library). The adapter was trained
on them, so the file is not collected anew when a page changes.
"""

import ast
import hashlib
import json
import pydoc_data.topics
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).with_name("sentences.json")
_ROOT = Path(__file__).resolve().parents[2]
# Short texts keep the prompts short: the judge is trained on one core.
_FEWEST_WORDS, _MOST_WORDS = 6, 9
# Letters and simple punctuation only: no code, numbers or markup.
_PLAIN = re.compile(r"[A-Z][a-z]*(?:[,;:]? [A-Za-z]+(?:['-][A-Za-z]+)*)+\.")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z])")
_NOT_DOCUMENTATION = {"test", "tests", "site-packages", "idlelib", "lib2to3", "turtledemo"}
# One page of this many is held out from training.
_HELD_OUT_OF = 4


def is_held_out(page: str) -> bool:
    """Whether no sentence of a page is ever trained on: a quarter of the pages, by digest."""
    return hashlib.sha256(page.encode()).digest()[0] % _HELD_OUT_OF == 0


def load() -> dict[str, list[str]]:
    """Returns the sentences of each page; no sentence is on two pages."""
    found: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def _project_pages() -> Iterator[tuple[str, str]]:
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
    files = [*(_ROOT / name for name in names), *sorted((_ROOT / "docs").rglob("*.md"))]
    for file in files:
        text = re.sub(r"```.*?```", "\n\n", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
        lines = [line for line in text.split("\n") if not line.startswith(("#", "|", "!"))]
        yield (
            file.relative_to(_ROOT).as_posix(),
            re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n\n", "\n".join(lines)),
        )


def _python_pages() -> Iterator[tuple[str, str]]:
    for topic, text in pydoc_data.topics.topics.items():
        yield f"python/{topic}", re.sub(r"\*(\w[\w ]*)\*", r"\1", text)
    library = Path(sysconfig.get_path("stdlib"))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file in sorted(library.rglob("*.py")):
        if _NOT_DOCUMENTATION & set(file.relative_to(library).parts):
            continue
        nodes = ast.walk(ast.parse(file.read_bytes()))
        texts = [ast.get_docstring(node) for node in nodes if isinstance(node, documented)]
        yield file.relative_to(library).as_posix(), "\n\n".join(text for text in texts if text)


def _sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            words = len(sentence.split())
            if _FEWEST_WORDS <= words <= _MOST_WORDS and _PLAIN.fullmatch(sentence):
                yield sentence


def main() -> None:
    """Writes sentences.json; a sentence of several pages belongs to the first."""
    seen: set[str] = set()
    found: dict[str, list[str]] = {}
    for page, text in [*_project_pages(), *_python_pages()]:
        for sentence in _sentences(text):
            if sentence.casefold() not in seen:
                seen.add(sentence.casefold())
                found.setdefault(page, []).append(sentence)
    FILE.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    print(f"{len(seen)} sentences of {len(found)} pages")


if __name__ == "__main__":
    main()
