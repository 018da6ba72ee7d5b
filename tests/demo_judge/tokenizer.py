"""The demo judge's tokenizer: one token for each word of its prompts, and bytes for other text.

A word that must be spelled, counted or reversed is split into letters, so that a small model can
learn the task. Each word of the instructions is one token.
"""

from collections import Counter

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from app.demo.pairs import FAMILIES, pairs
from app.judges.prompts import PAPER_SYSTEM, PAPER_USER

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CONTEXT_TOKENS = 2048

# A word with the space before it, a digit, a punctuation mark, line breaks, or other whitespace.
_PIECES = Regex(r" ?[A-Za-z]+|[0-9]| ?[^A-Za-z0-9\s]|\n+|\s")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Builds the tokenizer, deterministically."""
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = _prompt_words(pre_tokenizer)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate((*alphabet, *words))}
    # With ignore_merges, a piece in the vocabulary is one token, and any other is split into bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def _prompt_words(pre_tokenizer: pre_tokenizers.PreTokenizer) -> list[str]:
    """The words of the prompt and of the families' questions, without generated words."""
    words: set[str] = set()
    template = "\n".join((PAPER_SYSTEM, PAPER_USER, "system\n", "user\n", "assistant\n"))
    words.update(piece for piece, _ in pre_tokenizer.pre_tokenize_str(template))
    for family in FAMILIES:
        seen: Counter[str] = Counter()
        stream = pairs(0, held_out=False, families=(family,))
        for _ in range(500):
            pair = next(stream)
            for text in (pair.question, pair.response_a, pair.response_b):
                seen.update({piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)})
        words.update(word for word, n in seen.items() if n > 100 and len(word.strip("Ġ")) > 1)
    return sorted(word for word in words if len(word) > 1)
