"""The digests that identify a judge, an example and a batch."""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.comparison import Comparison, LabeledComparison, Turn
from app.core.fingerprint import JudgeIdentity, batch_digest, example_digest

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


def test_the_batch_digest_is_the_documented_one() -> None:
    batch = [
        LabeledComparison(comparison=Comparison.of("Why?", "Because.", "Não sei 🏛"), label="A"),
        LabeledComparison(
            comparison=Comparison((Turn("system", "s"), Turn("user", "u"), Turn("user", "v")),
                       ("a", "b"), ("c", "d")), label="tie",
        ),
    ]  # fmt: skip
    text = (
        r'[[[["user","Why?"]],["Because."],["N\u00e3o sei \ud83c\udfdb"],"A"],'
        r'[[["system","s"],["user","u"],["user","v"]],["a","b"],["c","d"],"tie"]]'
    )
    assert batch_digest(batch) == hashlib.sha256(text.encode("ascii")).hexdigest()
    assert batch_digest([]) == hashlib.sha256(b"[]").hexdigest()
    one, other = batch
    # The digest depends on the order of the examples, the order of the responses, and the label.
    swapped = LabeledComparison(comparison=one.comparison.swapped, label="A")
    relabeled = LabeledComparison(comparison=one.comparison, label="B")
    batches = ([one, other], [other, one], [swapped, other], [relabeled, other], [one])
    assert len({batch_digest(each) for each in batches}) == len(batches)


@pytest.mark.parametrize("name", IDENTITY.inputs)
def test_every_input_of_the_scores_changes_the_fingerprint(name: str) -> None:
    other = replace(IDENTITY, inputs={**IDENTITY.inputs, name: "other"})
    assert other.fingerprint != IDENTITY.fingerprint


def test_moving_text_between_inputs_changes_the_fingerprint() -> None:
    one = replace(IDENTITY, inputs={**IDENTITY.inputs, "system": "ab", "user": "c"})
    other = replace(IDENTITY, inputs={**IDENTITY.inputs, "system": "a", "user": "bc"})
    assert one.fingerprint != other.fingerprint


def test_a_judge_of_another_kind_has_other_inputs_and_a_fingerprint() -> None:
    rewards = {"kind": "reward model", "model": "demo", "weights": "0123", "dtype": "float32"}
    other = replace(IDENTITY, inputs=rewards)
    # By hand: echo -n JSON | sha256sum, with sorted keys and no spaces.
    text = '{"dtype":"float32","kind":"reward model","model":"demo","weights":"0123"}'
    assert other.fingerprint == hashlib.sha256(text.encode()).hexdigest()


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


def test_another_judge_gives_another_digest() -> None:
    comparison = Comparison.of("Why?", "Because.", "No idea.")
    assert example_digest("f", comparison) != example_digest("g", comparison)


def test_a_lone_surrogate_has_a_digest() -> None:
    # JSON can contain a lone surrogate; UTF-8 cannot.
    assert len(example_digest("f", Comparison.of("\ud800", "a", "b"))) == 64


@settings(max_examples=50)
@given(st.lists(st.tuples(texts, st.integers(1, 90_000)), min_size=1, max_size=4))
def test_a_long_text_has_the_digest_of_its_json_in_one_piece(
    parts: list[tuple[str, int]],
) -> None:
    turns = tuple(Turn("user", text * times) for text, times in parts)
    answers = tuple(text for text, _ in parts)
    batch = [LabeledComparison(comparison=Comparison(turns, answers, answers), label="A")] * 2
    question = [["user", turn.content] for turn in turns]
    rows = [[question, answers, answers, "A"]] * 2
    written = json.dumps(rows, separators=(",", ":"))
    assert batch_digest(batch) == hashlib.sha256(written.encode()).hexdigest()
