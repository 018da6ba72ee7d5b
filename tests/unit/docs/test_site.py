"""The site builds strictly, has every page in its navigation, and loads nothing from elsewhere."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS, ROOT

CONFIGURATION = ROOT / "zensical.toml"
# Elements that a browser fetches by itself when it shows a page.
_FETCHED = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]*)|<link[^>]*\shref=\"([^\"]*)")


def navigation() -> list[str]:
    """The pages of the site's navigation, in order."""

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(each)

    return list(pages(tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))["project"]["nav"]))


def test_the_navigation_has_every_page_once() -> None:
    pages = [str(file.relative_to(DOCS)) for file in markdown.files() if DOCS in file.parents]
    pages.remove("tools/README.md")
    assert sorted(navigation()) == sorted(pages)


@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="make setup-dev installs zensical"
)
def test_the_site_builds_strictly_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    # A copy: the build writes its cache beside its configuration.
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(CONFIGURATION, tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    built = {file.relative_to(tmp_path / "site") for file in tmp_path.rglob("site/**/*.html")}
    for page in navigation():
        name = Path(page).with_suffix(".html")
        name = name.with_name("index.html") if name.stem == "README" else name
        assert name in built
        html = (tmp_path / "site" / name).read_text(encoding="utf-8")
        # Lines that are indented by mistake would be one more block of code.
        text = (DOCS / page).read_text(encoding="utf-8")
        assert html.count("<pre") == len([*markdown.blocks(text)]), page
        fetched = [source or href for source, href in _FETCHED.findall(html)]
        assert fetched
        assert [each for each in fetched if re.match(r"(?:[a-z]+:)?//", each)] == []
