"""The digests that identify a judge, an example and a batch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Comparison, Turn
from app.core.fingerprint import JudgeIdentity, example_digest

IDENTITY = JudgeIdentity(
    name="demo",
    inputs={
        "model": "demo",
        "weights": "0123",
        "chat_frame": "{{ messages }}",
        "label_tokens": (32, 33),
        "dtype": "float32",
        "system": "Judge.",
        "user": "{question}",
        "prefill": "[[",
        "fence": 1,
    },
    described={"model": "demo"},
    max_prompt_tokens=512,
)
texts = st.text(min_size=1).filter(str.strip)


def test_the_fingerprint_is_the_same_in_every_release() -> None:
    # SHA-256 of the identity as JSON with sorted keys and no spaces. A change of this number makes
    # every stored calibration refuse its own judge.
    assert IDENTITY.fingerprint == (
        "ff718f9d8637146bd25cbb6c9dd6f31919e36db24905c6005e5f7b5699539a64"
    )


def test_the_example_digest_is_the_same_in_every_release() -> None:
    found = example_digest("f", Comparison.of("Why?", "Because.", "No idea."))
    assert found == "a7f0d2b92848b62188410dad6a2bf1d40557bc28c00972c6271ae813902897be"


@pytest.mark.parametrize("name", IDENTITY.inputs)
def test_every_input_of_the_scores_changes_the_fingerprint(name: str) -> None:
    other = replace(IDENTITY, inputs={**IDENTITY.inputs, name: "other"})
    assert other.fingerprint != IDENTITY.fingerprint


def test_what_a_judge_says_about_itself_is_no_part_of_the_fingerprint() -> None:
    other = replace(IDENTITY, name="another", described={}, max_prompt_tokens=1)
    assert other.fingerprint == IDENTITY.fingerprint


@given(texts, texts, texts)
def test_both_orders_of_the_responses_have_the_same_digest(q: str, a: str, b: str) -> None:
    comparison = Comparison.of(q, a, b)
    digest = example_digest("f", comparison)
    assert digest == example_digest("f", comparison.swapped)
    assert len(digest) == 64
    assert set(digest) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "other",
    [
        Comparison.of("Why not?", "Because.", "No idea."),
        Comparison.of("Why?", "Because!", "No idea."),
        Comparison.of("Why?", "Because.", "No idea. "),
        Comparison.of("Because.", "Why?", "No idea."),
        Comparison.of("Why?", "Because.", "Because."),
        Comparison((Turn("system", "Why?"), Turn("user", "Why?")), ("Because.",), ("No idea.",)),
        Comparison(
            (Turn("user", "Why?"), Turn("user", "Why?")), ("Because.", "x"), ("No idea.", "x")
        ),
    ],
)
def test_another_comparison_has_another_digest(other: Comparison) -> None:
    comparison = Comparison.of("Why?", "Because.", "No idea.")
    assert example_digest("f", other) != example_digest("f", comparison)


def test_the_texts_of_a_response_stay_together() -> None:
    turns = (Turn("user", "1"), Turn("user", "2"))
    here = Comparison(turns, ("p", "q"), ("r", "s"))
    mixed = Comparison(turns, ("p", "s"), ("r", "q"))
    assert example_digest("f", here) == example_digest("f", here.swapped)
    assert example_digest("f", here) != example_digest("f", mixed)


def test_a_lone_surrogate_has_a_digest() -> None:
    # JSON can contain a lone surrogate; UTF-8 cannot.
    assert len(example_digest("f", Comparison.of("\ud800", "a", "b"))) == 64
