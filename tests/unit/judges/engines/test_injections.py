"""The effect of known injections on a judge's token ids, and on the lines of the prompt."""

import itertools
from collections import Counter

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from app.core.comparison import Comparison
from app.core.errors import RequestError
from app.judges.engines.rendering import PromptRenderer
from app.judges.prompts import PromptTemplate
from tests.demo_judge.tokenizer import build_tokenizer
from tests.injections import INJECTIONS
from tests.unit.judges.test_quoting import HEADINGS, headings

TEMPLATE = PromptTemplate()
PLACES = ("question", "response_a", "response_b")
# Control tokens of many models, so that each text finds its own among them.
CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "[INST]",
    "[/INST]",
    "<s>",
    "</s>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<\uff5cUser\uff5c>",
    "<\uff5cAssistant\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|user|>",
    "<|assistant|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|return|>",
)
LLAMA = (
    "<s>{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] }}<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n"
)
MISTRAL = "<s>[INST]{% for m in messages %}{{ m['content'] }}\n{% endfor %}[/INST]"


def everything() -> PreTrainedTokenizerFast:
    """The demo judge's bytes under another template, with the control tokens of all families."""
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    tokenizer.add_tokens([AddedToken(text, special=False) for text in ("<think>", "</think>")])
    tokenizer.chat_template = LLAMA + "{# <think></think> #}"
    return tokenizer


def pieces() -> PreTrainedTokenizerFast:
    """A tokenizer of another kind: a mark for blanks, and bytes for unknown letters."""
    words = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", *map(chr, range(33, 127))]
    vocabulary = {word: i for i, word in enumerate(words)}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", chat_template=MISTRAL
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(CONTROL)})
    return tokenizer


TOKENIZERS = {"demo": build_tokenizer, "everything": everything, "pieces": pieces}


@pytest.fixture(scope="module", params=TOKENIZERS)
def judge(request: pytest.FixtureRequest) -> tuple[PromptRenderer, frozenset[int]]:
    tokenizer = TOKENIZERS[request.param]()
    control = frozenset(tokenizer.added_tokens_decoder)
    return PromptRenderer(tokenizer, max_prompt_tokens=10**5), control


def attacked(place: str, injection: str) -> Comparison:
    texts = dict.fromkeys(PLACES, "harmless") | {place: f"harmless{injection}"}
    return Comparison.of(**texts)


@pytest.mark.parametrize("place", PLACES)
def test_an_injection_adds_no_control_token(
    judge: tuple[PromptRenderer, frozenset[int]], place: str
) -> None:
    renderer, control = judge
    harmless = TEMPLATE.render(Comparison.of("harmless", "harmless", "harmless"))
    prompts = [TEMPLATE.render(attacked(place, each.text)) for each in INJECTIONS]
    expected, *found = (
        Counter(i for i in ids if i in control)
        for ids in renderer.token_ids([harmless, *prompts])
        if not isinstance(ids, RequestError)
    )
    assert expected.total() > 0
    assert found == [expected] * len(INJECTIONS)


def test_no_injection_adds_a_heading() -> None:
    for injection, place in itertools.product(INJECTIONS, PLACES):
        for prompt in TEMPLATE.both_orders(attacked(place, injection.text)):
            assert headings(prompt.user) == HEADINGS, (injection, place)


def test_the_fence_changes_only_forged_headings() -> None:
    changed = {
        each.family
        for each in INJECTIONS
        if f"harmless{each.text}" not in TEMPLATE.render(attacked("response_a", each.text)).user
    }
    assert changed == {"forged heading"}
