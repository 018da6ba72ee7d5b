"""Files of a leaderboard's publisher are read whole, or refused with their place."""

import re
from pathlib import Path

import pytest

from app.core.errors import InvalidRequestError
from app.ratings.presentation import ModelFacts, about_html, read_about, read_models


def written(folder: Path, text: str, name: str = "file") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "model,organization,license,link\na,Lab,MIT,https://x.y/a\nb,,,\n",
        "model,organization,license,link,notes\na,Lab,MIT,https://x.y/a,n\nb,,,,\n",
        '[{"model": "a", "organization": "Lab", "license": "MIT", "link": "https://x.y/a"},'
        ' {"model": "b", "license": null}]',
    ],
)
def test_facts_of_models_come_from_a_table_or_json(text: str, tmp_path: Path) -> None:
    assert read_models(written(tmp_path, text)) == {
        "a": ModelFacts(organization="Lab", license="MIT", link="https://x.y/a"),
        "b": ModelFacts(),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,link\na,javascript:alert(1)\n", "link is 'javascript:alert(1)'"),
        ("model,link\na,//x.y\n", "must begin with http:// or https://"),
        ("model,link\na,https://[x\n", "must begin with http:// or https://"),
        ("model,license\na,MIT\na,MIT\n", "the model 'a' occurs twice"),
        ("name,license\na,MIT\n", "model is missing"),
        ("model,size\na,7B\n", "has no information about the models"),
        ('[{"model": 5, "license": "MIT"}]', "model is missing, or is not a text"),
        ('[{"model": "a", "license": ["MIT"]}]', "license is not a text"),
        ("", "empty"),
    ],
)
def test_facts_that_cannot_be_used_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        read_models(written(tmp_path, text))


def test_an_about_text_is_utf_8_of_a_readable_length(tmp_path: Path) -> None:
    assert read_about(written(tmp_path, "é")) == "é"
    latin = tmp_path / "latin"
    latin.write_bytes("é".encode("latin-1"))
    with pytest.raises(InvalidRequestError, match="is not UTF-8"):
        read_about(latin)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        read_about(tmp_path / "none")
    with pytest.raises(InvalidRequestError, match="at most 100,000"):
        read_about(written(tmp_path, "x" * 100_001))


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("# One\n\n###### Six", "<h2>One</h2>\n<h6>Six</h6>\n"),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>\n"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>\n"),
        ("[x](data:text/html,y)", "<p>[x](data:text/html,y)</p>\n"),
        ("[x](/local)", "<p><a>x</a></p>\n"),
        ("[x](data:image/png;base64,y)", "<p><a>x</a></p>\n"),
        (
            "[x](https://y.z)",
            '<p><a href="https://y.z" rel="nofollow noopener">x</a></p>\n',
        ),
        (
            "![x](https://y.z/i.png)",
            '<p>!<a href="https://y.z/i.png" rel="nofollow noopener">x</a></p>\n',
        ),
        ("\u202ex\x1b", "<p>\\u202ex\\x1b</p>\n"),
    ],
)
def test_markdown_becomes_html_without_markup_of_its_own(markdown: str, html: str) -> None:
    assert about_html(markdown) == html
