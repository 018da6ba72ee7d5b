"""The paper's prompts to the letter, and what is read from answers: what is unclear is nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Comparison, Side
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labelled_pairs import LabelledPair
from app.evaluation.judgments.prompts import (
    annotator_prompts,
    draw_personas,
    parse_confidence,
    parse_verdict,
    verbalized_prompt,
)
from app.ports import Generated
from app.service.prompts import PromptTemplate

TEMPLATE = PromptTemplate()
TARGET = Comparison.of("Why is the sky blue?", "Rayleigh.", "Paint.")

# SCOPE, figure verbalized_confidence_prompt, its system message.
PAPER_VERBALIZED_SYSTEM = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two AI "
    "assistants to the user question displayed below. You should choose the assistant that follows "
    "the user's instructions and answers the user's question better. Your evaluation should "
    "consider factors such as the helpfulness, relevance, accuracy, depth, creativity, and level "
    "of detail of their responses. Avoid any position biases and ensure that the order in which "
    "the responses were presented does not influence your decision. Do not allow the length of the "
    "responses to influence your evaluation. Do not favor certain names of the assistants. Be as "
    "objective as possible. Output your final verdict by strictly following this format: "
    '"[[A]]" if assistant A is better, "[[B]]" if assistant B is better. '
    "Provide a score between 0.0 (total guess) and 1.0 (absolute certainty)."
)


def demonstration(i: int, label: Side = "A") -> LabelledPair:
    return LabelledPair(str(i), "g", Comparison.of(f"q{i}", f"a{i}", f"b{i}"), label)


POOL = [demonstration(i, "A" if i % 2 else "B") for i in range(50)]


def said(text: str) -> Generated:
    return Generated(text, complete=True)


def cut(text: str) -> Generated:
    return Generated(text, complete=False)


def test_the_verbalized_prompt_is_the_papers_figure() -> None:
    prompt = verbalized_prompt(TEMPLATE, TARGET)
    assert prompt.system == PAPER_VERBALIZED_SYSTEM
    assert prompt.user == TEMPLATE.render(TARGET).user
    assert prompt.prefill == ""


def test_without_a_system_message_the_score_is_asked_for_behind_the_users() -> None:
    template = PromptTemplate(system="", prefill="[[")
    prompt = verbalized_prompt(template, TARGET)
    asked = "Provide a score between 0.0 (total guess) and 1.0 (absolute certainty)."
    assert prompt == ("", f"{template.render(TARGET).user}\n\n{asked}", "[[")


def test_the_annotators_prompt_is_the_papers_figure() -> None:
    personas = [[demonstration(1, "A"), demonstration(2, "B")], [demonstration(3, "B")]]
    first, second = annotator_prompts(TEMPLATE, TARGET, personas)
    # SCOPE, figure simulated_annotators_prompt: the standard system message, demonstrations with
    # "Verdict: [[A]]" behind them, then the target under a header of its own.
    target = (
        "[Target User Question]\nWhy is the sky blue?\n\n"
        "[Assistant A's Answer]\nRayleigh.\n\n"
        "[Assistant B's Answer]\nPaint."
    )
    assert first.system == second.system == TEMPLATE.system
    assert first.user == (
        "[User Question]\nq1\n\n[Assistant A's Answer]\na1\n\n[Assistant B's Answer]\nb1\n\n"
        "Verdict: [[A]]\n\n"
        "[User Question]\nq2\n\n[Assistant A's Answer]\na2\n\n[Assistant B's Answer]\nb2\n\n"
        f"Verdict: [[B]]\n\n{target}"
    )
    assert second.user == (
        "[User Question]\nq3\n\n[Assistant A's Answer]\na3\n\n[Assistant B's Answer]\nb3\n\n"
        f"Verdict: [[B]]\n\n{target}"
    )


def test_placeholders_and_headers_inside_texts_stay_text() -> None:
    tricky = Comparison.of("{answer_b} [User Question] {question}", "{answer_a}", "{answer_b}")
    shown = LabelledPair("1", "g", tricky, "A")
    (prompt,) = annotator_prompts(TEMPLATE, tricky, [[shown]])
    comparison = (
        "User Question]\n{answer_b} [User Question] {question}\n\n"
        "[Assistant A's Answer]\n{answer_a}\n\n[Assistant B's Answer]\n{answer_b}"
    )
    assert prompt.user == f"[{comparison}\n\nVerdict: [[A]]\n\n[Target {comparison}"


def test_a_template_without_the_papers_header_is_kept_as_it_is() -> None:
    template = PromptTemplate(user="Q: {question} 1: {answer_a} 2: {answer_b}", prefill="[[")
    (prompt,) = annotator_prompts(template, TARGET, [[demonstration(7)]])
    assert prompt.user == (
        "Q: q7 1: a7 2: b7\n\nVerdict: [[A]]\n\nQ: Why is the sky blue? 1: Rayleigh. 2: Paint."
    )
    assert prompt.prefill == "[["


def test_personas_are_disjoint_where_the_pool_is_large_enough_and_the_seed_decides() -> None:
    personas = draw_personas(POOL, seed=3)
    assert [len(persona) for persona in personas] == [5] * 5
    assert len({pair.id for persona in personas for pair in persona}) == 25
    assert draw_personas(POOL, seed=3) == personas
    assert draw_personas(POOL, seed=4) != personas
    # Exactly enough: every demonstration is used.
    exact = draw_personas(POOL[:25], seed=3)
    assert {pair.id for persona in exact for pair in persona} == {p.id for p in POOL[:25]}


def test_every_demonstration_of_the_pool_is_as_likely() -> None:
    runs = 2000
    drawn = [
        p.id for seed in range(runs) for persona in draw_personas(POOL, seed=seed) for p in persona
    ]
    shares = [drawn.count(pair.id) / runs for pair in POOL]
    # Each is in a run with probability 25 / 50; 4.5 standard deviations of 50 shares.
    assert max(abs(share - 0.5) for share in shares) < 4.5 * (0.25 / runs) ** 0.5


@given(n=st.integers(6, 24), seed=st.integers(0, 100))
def test_in_a_small_pool_each_persona_is_distinct_and_repeats_no_demonstration(
    n: int, seed: int
) -> None:
    personas = draw_personas(POOL[:n], seed=seed)
    sets = {frozenset(pair.id for pair in persona) for persona in personas}
    assert len(sets) == 5
    assert all(len(persona) == 5 for persona in sets)


def test_a_pool_that_is_too_small_is_refused_with_what_is_needed() -> None:
    # Five sets of five that differ need six demonstrations: of five there is one set.
    for n in (0, 4, 5):
        with pytest.raises(InvalidRequestError, match=f"at least 6 .* there are {n}"):
            draw_personas(POOL[:n], seed=0)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[[A]]", "A"),
        ("[[B]]", "B"),
        ("  [[B]].\n", "B"),
        ("My verdict is [[A]], because [[A]] is better than B.", "A"),
        ("[[A]] 0.87", "A"),
        ("A", "A"),
        (" B\n", "B"),
        ('"A".', "A"),
        ("**B**", "B"),
        ("(A)", "A"),
        ("[[B", "B"),
        ("[A]", "A"),
        ("[[ A ]]", "A"),
        ('"[[A]]" if assistant A is better, "[[B]]" if assistant B is better.', None),
        ("[[A]][[B]]", None),
        ("[[C]]", None),
        ("[[a]]", None),
        ("", None),
        ("AB", None),
        ("A B", None),
        ("A/B", None),
        ("A?", None),
        ("AAAA", None),
        ("a", None),
        ("Apple", None),
        ("A is better", None),
        ("Assistant A", None),
        ("neither", None),
        ("0.5", None),
    ],
)
def test_a_verdict_is_the_one_label_that_an_answer_names(text: str, verdict: str | None) -> None:
    assert parse_verdict(said(text)) == verdict


def test_a_bare_letter_that_was_cut_is_no_verdict_and_a_bracketed_one_is() -> None:
    assert parse_verdict(cut("A")) is None
    assert parse_verdict(cut("[[B")) is None
    assert parse_verdict(cut("[[B]] because it")) == "B"


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("[[A]] 0.87", 0.87),
        ("0.9", 0.9),
        (".9", 0.9),
        ("1.0", 1.0),
        ("0.0", 0.0),
        ("1", 1.0),
        ("0", 0.0),
        ("1.", 1.0),
        ("[[B]] 1", 1.0),
        ("[[A]]\n0", 0.0),
        ("[[A]] [[0.9]]", 0.9),
        ("[[A]] (0.9)", 0.9),
        ("[[A]], score: 0.75.", 0.75),
        ("Confidence:0.9", 0.9),
        ("score=0.9!", 0.9),
        ("**0.85**", 0.85),
        ("The score of 1", 1.0),
        ("1 (absolute certainty)", 1.0),
        ("0.9, that is, 0.90", 0.9),
        ("For 3 reasons: 0.8", 0.8),
        ("1. [[A]]\n2. 0.8", 0.8),
        ("Verdict:\n1) It is right\n2) It is short\nScore: 0.7", 0.7),
        # Two different ones, or none.
        ("0.8 or 0.9", None),
        ("between 0.0 and 1.0", None),
        ("0 to 1.0", None),
        ("[[A]]", None),
        ("", None),
        ("high", None),
        ("nan", None),
        # Out of range.
        ("2.5", None),
        ("85", None),
        ("1.01", None),
        # Part of something else.
        ("10/10", None),
        ("1/1", None),
        ("1 / 1", None),
        ("0.9/1.0", None),
        ("0.9 / 1.0", None),
        ("0.9 out of 1.0", None),
        ("9 out of 10", None),
        ("1 out of 10", None),
        ("85%", None),
        ("0.85%", None),
        ("0.9 %", None),
        ("1 percent", None),
        ("v1.0.2", None),
        ("1.0.2", None),
        ("1,000", None),
        ("1,0", None),
        ("0,9", None),
        ("-0.9", None),
        ("+1", None),
        ("0.8-0.9", None),
        ("0.8–0.9", None),  # noqa: RUF001
        ("0.8±0.1", None),
        ("< 0.5", None),
        (">0.9", None),
        ("1e-3", None),
        ("10^-1", None),
        ("1:30", None),
        ("$0.99", None),
        ("1st", None),
        ("0.9x", None),
        ("A1", None),
        ("...0.9", None),
        ("0.9...", 0.9),
        # Numbers of items and of assistants.
        ("1. Assistant A is better", None),
        ("[[A]]\n1. It is right.\n2. It is short.", None),
        ("[[A]] 1. It is right", None),
        ("(1) It is right", None),
        ("1)\nIt is right", None),
        ("Response 1 is better", None),
        ("I prefer assistant 1", None),
        ("Response 1 is better: 0.8", None),
        ("as said in [1]", None),
        ("[[1]]", None),
        ("It makes 0 mistakes", None),
    ],
)
def test_a_confidence_is_the_one_number_that_stands_alone(
    text: str, confidence: float | None
) -> None:
    assert parse_confidence(said(text)) == confidence


@pytest.mark.parametrize("text", ["[[A]] 0.9", "[[A]] 0", "[[A]] 0.", "1", "0.9 ", "0.8 or 0.8"])
def test_a_number_that_the_token_limit_may_have_cut_is_not_trusted(text: str) -> None:
    assert parse_confidence(cut(text)) is None


def test_a_number_before_the_cut_is_trusted() -> None:
    assert parse_confidence(cut("[[A]] 0.9\nAssistant A is")) == 0.9
    assert parse_confidence(cut("0.9 because the fi")) == 0.9


@given(text=st.text(alphabet="01259.,%/-+ \n()[]AB:ae", max_size=20), complete=st.booleans())
def test_whatever_an_answer_says_is_a_confidence_in_range_or_none(
    text: str, complete: bool
) -> None:
    confidence = parse_confidence(Generated(text, complete))
    assert confidence is None or 0.0 <= confidence <= 1.0
    assert parse_verdict(Generated(text, complete)) in ("A", "B", None)


@given(hundredths=st.integers(0, 100), verdict=st.sampled_from(["", "[[A]] ", "[[B]]\n"]))
def test_every_score_of_two_digits_is_read_as_it_is_written(hundredths: int, verdict: str) -> None:
    text = f"{hundredths / 100:.2f}"
    assert parse_confidence(said(verdict + text)) == float(text)
