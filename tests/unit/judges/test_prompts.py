"""Tests of the paper's template, of filling it in one pass, and of the file that replaces it."""

import hashlib
from pathlib import Path

import pytest

from app.core.comparison import Comparison, Turn
from app.core.errors import StartupError
from app.judges.prompts import PAPER_SYSTEM, PAPER_USER, PromptTemplate, load_template

# Digest of the lines of the paper's figure prompt_template, without TeX commands and empty lines.
FIGURE_SHA256 = "34d153322738fef07827cf998f1a66859bbf1cdb6d5f95af378773354c44c6a3"
USER = "{question} / {answer_a} / {answer_b}"


def test_the_template_has_the_digest_of_the_papers_figure() -> None:
    shown = "\n".join(["[System]", PAPER_SYSTEM, *filter(None, PAPER_USER.splitlines())])
    assert hashlib.sha256(shown.encode()).hexdigest() == FIGURE_SHA256


def test_both_orders_differ_only_in_which_response_is_shown_first() -> None:
    forward, reverse = PromptTemplate().both_orders(Comparison.of("Why?", "one", "two"))
    assert forward.system == reverse.system == PAPER_SYSTEM
    assert forward.prefill == reverse.prefill == ""
    assert forward.user == (
        "[User Question]\nWhy?\n\n[Assistant A's Answer]\none\n\n[Assistant B's Answer]\ntwo"
    )
    assert reverse.user == (
        "[User Question]\nWhy?\n\n[Assistant A's Answer]\ntwo\n\n[Assistant B's Answer]\none"
    )


def test_a_placeholder_inside_a_text_stays_text() -> None:
    template = PromptTemplate(user=USER)
    comparison = Comparison.of("{answer_a}", "{answer_b} {question}", r"{answer_a} \1 \g<0>")
    assert template.render(comparison).user == (
        r"{answer_a} / {answer_b} {question} / {answer_a} \1 \g<0>"
    )


def test_a_conversation_names_its_turns_and_numbers_the_replies() -> None:
    comparison = Comparison(
        (Turn("system", "Be brief."), Turn("user", "Hi"), Turn("user", "More")),
        ("a1", "a2"),
        ("b1", "b2"),
    )
    assert PromptTemplate(user=USER).render(comparison).user == (
        "### System:\nBe brief.\n\n### User:\nHi\n\n### User:\nMore"
        " / ### Reply 1:\na1\n\n### Reply 2:\na2"
        " / ### Reply 1:\nb1\n\n### Reply 2:\nb2"
    )


def test_a_conversation_with_one_response_shows_the_response_bare() -> None:
    turns = (Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "Why?"))
    assert PromptTemplate(user=USER).render(Comparison(turns, ("a",), ("b",))).user == (
        "### User:\nHi\n\n### Assistant:\nHello\n\n### User:\nWhy? / a / b"
    )


def test_without_a_file_the_papers_template_is_used() -> None:
    assert load_template(None, prefill="[[") == PromptTemplate(PAPER_SYSTEM, PAPER_USER, "[[")


@pytest.mark.parametrize(("head", "system"), [("system = 'Judge.'\n", "Judge."), ("", "")])
def test_a_file_replaces_both_texts(tmp_path: Path, head: str, system: str) -> None:
    path = tmp_path / "prompt.toml"
    path.write_text(f"{head}user = '{USER}'", encoding="utf-8")
    assert load_template(path, prefill="[[") == PromptTemplate(system, USER, "[[")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("user = '{question} {answer_a}'", id="missing placeholder"),
        pytest.param(f"user = '{USER} {{question}}'", id="doubled placeholder"),
        pytest.param("user = 'none'", id="no placeholder"),
        pytest.param(f"user = '{USER}'\nsytem = 'typo'", id="unknown key"),
        pytest.param("system = 'alone'", id="no user"),
        pytest.param("user = 3", id="no string"),
        pytest.param(f"system = 3\nuser = '{USER}'", id="system no string"),
        pytest.param("not toml", id="not TOML"),
        pytest.param("x = " + "[" * 5000, id="too deep"),
        pytest.param("x = 1" + "0" * 5000, id="long number"),
        pytest.param(None, id="missing file"),
    ],
)
def test_an_unusable_file_stops_the_start_and_names_the_setting(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "prompt.toml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(StartupError, match="SCOPE_PROMPT_FILE"):
        load_template(path, prefill="")


def test_a_file_that_is_not_utf8_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "prompt.toml"
    path.write_bytes(b"user = '\xff'")
    with pytest.raises(StartupError, match="SCOPE_PROMPT_FILE"):
        load_template(path, prefill="")
