"""Prompts and samples that a policy's chat template has rendered become questions and responses."""

import pytest

from app.api.requests.rendered import rendered, response_in_query, without_endings
from app.core.comparison import Turn

SYSTEM, USER = Turn("system", "Be brief."), Turn("user", "What is 2 + 2?")
ASKED = (SYSTEM, USER)
LONGER = (USER, Turn("assistant", "4"), Turn("user", "Sure?"))
PROMPTS: dict[str, tuple[str, tuple[Turn, ...]]] = {
    "ChatML": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n",
        ASKED,
    ),
    "ChatML, thinking": (
        "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n<think>\n",
        (USER,),
    ),
    "ChatML, several turns": (
        "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n",
        LONGER,
    ),
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ASKED,
    ),
    "Gemma": (
        "<bos><start_of_turn>user\nWhat is 2 + 2?<end_of_turn>\n<start_of_turn>model\n",
        (USER,),
    ),
    "plain": ("What is 2 + 2?", (USER,)),
    "another format": ("[INST] What? [/INST]", (Turn("user", "[INST] What? [/INST]"),)),
    "text around the turns": (
        "Hello <|im_start|>user\nx<|im_end|>",
        (Turn("user", "Hello <|im_start|>user\nx<|im_end|>"),),
    ),
    "unknown role": (
        "<|im_start|>tool\nx<|im_end|>\n",
        (Turn("user", "<|im_start|>tool\nx<|im_end|>\n"),),
    ),
    "no turn of the user": (
        "<|im_start|>system\nx<|im_end|>\n",
        (Turn("user", "<|im_start|>system\nx<|im_end|>\n"),),
    ),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_rendered_prompt_becomes_its_conversation(name: str) -> None:
    prompt, turns = PROMPTS[name]
    assert rendered(prompt) == turns


@pytest.mark.parametrize("prompt", ["", " \n", "\ud800"])
def test_a_prompt_without_text_is_refused(prompt: str) -> None:
    with pytest.raises(ValueError, match=r"blank|Unicode"):
        rendered(prompt)


def test_the_response_is_what_follows_the_prompt() -> None:
    assert response_in_query("Q: 2?A: 4</s>", "Q: 2?A:") == " 4</s>"
    assert response_in_query(" Q: 2?A: 4", "Q: 2?A:") == " 4"
    assert response_in_query("2?A: 4", "Q: 2?A:") is None


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("4", "4"),
        ("4<|im_end|>", "4"),
        ("4<|im_end|>\n<|endoftext|>\n", "4"),
        ("  4 <|eot_id|>", "4"),
        ("a </s> b</s>", "a </s> b"),
        ("4<|im_end|>5", "4<|im_end|>5"),
        ("<end_of_turn>", ""),
        (" ", ""),
        ("</s>" * 300_000, ""),
    ],
)
def test_markers_are_removed_from_the_end_of_a_response_only(response: str, text: str) -> None:
    assert without_endings(response) == text
