"""The paper's prompts verbatim, and the personas of the simulated annotators."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.comparison import Comparison, Side
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.labeled_pairs import LabeledPair
from app.evaluation.judgments.questions import annotator_prompts, draw_personas, verbalized_prompt
from app.judges.prompts import PromptTemplate

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


def demonstration(i: int, label: Side = "A") -> LabeledPair:
    return LabeledPair(
        id=str(i), group="g", comparison=Comparison.of(f"q{i}", f"a{i}", f"b{i}"), label=label
    )


POOL = [demonstration(i, "A" if i % 2 else "B") for i in range(50)]


def test_the_verbalized_prompt_is_the_papers_figure() -> None:
    prompt = verbalized_prompt(TEMPLATE, TARGET)
    assert prompt.system == PAPER_VERBALIZED_SYSTEM
    assert prompt.user == TEMPLATE.render(TARGET).user
    assert prompt.prefill == ""


def test_the_annotators_prompt_is_the_papers_figure() -> None:
    personas = [[demonstration(1, "A"), demonstration(2, "B")], [demonstration(3, "B")]]
    first, second = annotator_prompts(TEMPLATE, TARGET, personas)
    # SCOPE, figure simulated_annotators_prompt: the standard system message, demonstrations that
    # end with "Verdict: [[A]]", then the target under its own header.
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
    shown = LabeledPair(id="1", group="g", comparison=tricky, label="A")
    (prompt,) = annotator_prompts(TEMPLATE, tricky, [[shown]])
    comparison = (
        "User Question]\n{answer_b} [User Question] {question}\n\n"
        "[Assistant A's Answer]\n{answer_a}\n\n[Assistant B's Answer]\n{answer_b}"
    )
    assert prompt.user == f"[{comparison}\n\nVerdict: [[A]]\n\n[Target {comparison}"


def test_personas_are_disjoint_where_the_pool_is_large_enough_and_the_seed_decides() -> None:
    personas = draw_personas(POOL, seed=3)
    assert [len(persona) for persona in personas] == [5] * 5
    assert len({pair.id for persona in personas for pair in persona}) == 25
    assert draw_personas(POOL, seed=3) == personas
    assert draw_personas(POOL, seed=4) != personas
    # There are exactly enough: every demonstration is used.
    exact = draw_personas(POOL[:25], seed=3)
    assert {pair.id for persona in exact for pair in persona} == {p.id for p in POOL[:25]}


@given(n=st.integers(6, 24), seed=st.integers(0, 100))
def test_in_a_small_pool_each_persona_is_distinct_and_repeats_no_demonstration(
    n: int, seed: int
) -> None:
    personas = draw_personas(POOL[:n], seed=seed)
    sets = {frozenset(pair.id for pair in persona) for persona in personas}
    assert len(sets) == 5
    assert all(len(persona) == 5 for persona in sets)


def test_a_pool_that_is_too_small_is_refused_with_the_needed_size() -> None:
    # Five distinct sets of five need six demonstrations: five give a single set.
    for n in (0, 4, 5):
        with pytest.raises(InvalidRequestError, match=f"at least 6 .* there are {n}"):
            draw_personas(POOL[:n], seed=0)
