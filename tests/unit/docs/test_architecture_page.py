"""docs/design/architecture.md names only files and packages that exist."""

import re

from tests.unit.docs.markdown import ROOT

PAGE = ROOT / "docs" / "design" / "architecture.md"
# Code that is a path: `app/core/pac.py`, `wire/answers.py`, `stores/`.
_PATH = re.compile(r"`((?:[\w.-]+/)+(?:\w+\.py)?)`")


def paths() -> list[str]:
    return sorted(set(_PATH.findall(PAGE.read_text(encoding="utf-8"))))


def test_every_named_file_exists() -> None:
    # A path begins at the repository, at app/ or, in the row of `api`, at app/api/.
    folders = (ROOT, ROOT / "app", ROOT / "app" / "api")
    assert [x for x in paths() if not any((folder / x).exists() for folder in folders)] == []


def test_the_page_names_files() -> None:
    assert len(paths()) > 5
