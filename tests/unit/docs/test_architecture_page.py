"""The pages about the code name only files and packages that exist."""

import re

import pytest

from tests.unit.docs.markdown import ROOT

PAGES = ("docs/design/architecture.md", "CONTRIBUTING.md")
# Code that is a path: `app/core/pac.py`, `wire/answers.py`, `stores/`.
_PATH = re.compile(r"`((?:[\w.-]+/)+(?:\w+\.py)?)`")


def paths(page: str) -> list[str]:
    return sorted(set(_PATH.findall((ROOT / page).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_exists(page: str) -> None:
    # A path begins at the repository, at app/ or, in the row of `api`, at app/api/.
    folders = (ROOT, ROOT / "app", ROOT / "app" / "api")
    assert [x for x in paths(page) if not any((folder / x).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_page_names_files(page: str) -> None:
    assert len(paths(page)) > 5
