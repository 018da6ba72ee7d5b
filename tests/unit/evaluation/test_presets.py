"""The paper's judges: each is in the paper's tables, and each has its prompt."""

import pytest

from app.core.comparison import Comparison
from app.evaluation.paper import paper_judge
from app.evaluation.presets import PRESETS
from app.service.scoring.prompts import PromptTemplate


def test_the_five_judges_of_the_paper_are_there() -> None:
    judges = {paper_judge(preset.model) for preset in PRESETS.values()}
    assert judges == {
        "Qwen2.5-7B-Instruct",
        "Qwen2.5-14B-Instruct",
        "Qwen2.5-32B-Instruct",
        "Llama-3.1-70B-Instruct",
        "Skywork-Critic-Llama-3.1-8B",
    }
    for name, preset in PRESETS.items():
        assert paper_judge(name) == paper_judge(preset.model)


@pytest.mark.parametrize("name", PRESETS)
def test_every_judge_is_shown_both_orders(name: str) -> None:
    forward, reverse = PRESETS[name].template.both_orders(Comparison.of("Why?", "Yes.", "No."))
    assert forward.user.index("Yes.") < forward.user.index("No.")
    assert reverse.user.index("No.") < reverse.user.index("Yes.")
    assert forward._replace(user="") == reverse._replace(user="")
    assert '"[[A]]" if assistant A is better, "[[B]]"' in forward.system + forward.user


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith("skywork")])
def test_instruction_tuned_judges_have_the_papers_prompt(name: str) -> None:
    assert PRESETS[name].template == PromptTemplate()


def test_the_critic_has_the_prompt_of_its_model_card() -> None:
    prompt = PRESETS["skywork-critic-8b"].template.render(Comparison.of("Why?", "Yes {x}.", "No."))
    assert (prompt.system, prompt.prefill) == ("", "[[")
    assert prompt.user.startswith("Please act as an impartial judge")
    # The line breaks of its model card, with the spaces before them.
    assert "answers the user's question better. \nYour evaluation should" in prompt.user
    assert "Be as objective as possible. \nPlease directly output your final verdict" in prompt.user
    assert prompt.user.endswith(
        "[User Question]\nWhy?\n\n"
        "[The Start of Assistant A's Answer]\nYes {x}.\n[The End of Assistant A's Answer]\n\n"
        "[The Start of Assistant B's Answer]\nNo.\n[The End of Assistant B's Answer]\n"
    )


def test_large_judges_use_enough_gpus_for_their_weights() -> None:
    # Billions of parameters at 2 bytes each, on GPUs of 80 GB of which vLLM takes 90%.
    sizes = {"qwen2.5-7b": 7.6, "qwen2.5-14b": 14.8, "qwen2.5-32b": 32.8, "llama-3.1-70b": 70.6}
    for name, billions in sizes.items():
        assert 2 * billions < 0.8 * 0.9 * 80 * PRESETS[name].tensor_parallel
