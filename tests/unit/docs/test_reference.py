"""The pages of docs/reference/ are up to date; `make reference` writes them."""

import pytest

from docs.tools import make_reference


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_a_reference_page_is_the_one_that_the_code_makes(name: str) -> None:
    written = (make_reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == make_reference.PAGES[name](), "run: python docs/tools/make_reference.py"


def test_every_page_of_the_reference_is_made() -> None:
    found = {file.name for file in make_reference.FOLDER.glob("*.md")}
    assert found == set(make_reference.PAGES)
