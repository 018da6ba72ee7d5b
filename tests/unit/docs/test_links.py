"""Links, anchors and file names in Markdown and in code lead to what exists; no URL is fetched."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS, ROOT

# A path of the repository, in a code span or a command. `<name>` and `*` stand for anything.
_PATH = re.compile(
    r"(?<![\w./$}-])(?:\./)?((?:\.ci|\.github|app|deploy|docker|docs|requirements|tests)/[\w.*<>/-]+)"
)
_PAGE = re.compile(r"(docs/[a-z/-]+\.md)(?:#([a-z0-9-]+))?")
_SUFFIXES = (".cfg", ".json", ".py", ".sh", ".toml", ".yaml", ".yml")


def link_faults(file: Path, text: str) -> Iterator[str]:
    """Yields each link of a Markdown file that leads nowhere."""
    for number, target in markdown.links(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = Path(os.path.normpath(file.parent / path)) if path else file
        if path and not to.exists():
            yield f"line {number}: there is no {target}"
        elif to != file and DOCS in file.parents and DOCS not in (to, *to.parents):
            yield f"line {number}: {target} is not part of the site; name it by its path in `...`"
        elif anchor and anchor not in markdown.anchors(
            text if to == file else to.read_text(encoding="utf-8")
        ):
            yield f"line {number}: {path or file.name} has no heading #{anchor}"


def path_faults(text: str) -> Iterator[str]:
    """Yields each path in code spans and fenced blocks that the repository does not have."""
    spans = [*markdown.code_spans(text)]
    spans += [(line.number, line.text) for line in markdown.lines(text) if line.fenced]
    for number, span in spans:
        for found in _PATH.findall(span):
            path = found.rstrip(".")
            if not _exists(path):
                yield f"line {number}: there is no {path}"


def _exists(path: str) -> bool:
    pattern = re.sub(r"<[^>]*>", "*", path)
    return any(ROOT.glob(pattern.rstrip("/"))) if "*" in pattern else (ROOT / path).exists()


def test_every_link_of_a_page_leads_somewhere() -> None:
    assert [*_on_every_page(link_faults)] == []


def test_every_path_on_a_page_exists() -> None:
    assert [*_on_every_page(lambda _, text: path_faults(text))] == []


def _on_every_page(faults: Callable[[Path, str], Iterator[str]]) -> Iterator[str]:
    pages = markdown.files()
    assert pages
    for file in pages:
        for fault in faults(file, file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(ROOT)}: {fault}"


def test_every_page_that_code_or_configuration_names_exists() -> None:
    faults = []
    for file in _sources():
        source = file.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(source.splitlines(), start=1):
            for path, anchor in _PAGE.findall(line):
                page = ROOT / path
                if not page.is_file() or (
                    anchor and anchor not in markdown.anchors(page.read_text(encoding="utf-8"))
                ):
                    named = f"{path}#{anchor}" if anchor else path
                    faults.append(f"{file.relative_to(ROOT)}:{number}: there is no {named}")
    assert faults == []


def _sources() -> Iterator[Path]:
    """Code and configuration that may name a page."""
    yield from (ROOT / name for name in ("Makefile", "docker-compose.yml", "pyproject.toml"))
    for folder in markdown.FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in _SUFFIXES:
                yield file


@pytest.mark.parametrize("page", ["docs/design/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_about_the_code_names_exists(page: str) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+(?:\w+\.py)?)`", (ROOT / page).read_text(encoding="utf-8"))
    # A path begins at the repository, at app/ or, in the row of `api`, at app/api/.
    folders = (ROOT, ROOT / "app", ROOT / "app" / "api")
    assert len(named) > 5
    assert [x for x in named if not any((folder / x).exists() for folder in folders)] == []
