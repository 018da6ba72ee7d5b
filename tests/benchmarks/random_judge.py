"""A judge of about 100M parameters with random weights: realistic work for an engine."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.benchmarks.texts import real_pairs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "scope-judge-benchmarks"
CONTEXT_TOKENS = 4096
_SEED = 20261121
_VOCABULARY = 16_384
_CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
Dtype = Literal["bfloat16", "float32"]


def random_judge(dtype: Dtype, cache: Path = CACHE) -> Path:
    """The judge's folder; it is built if it does not exist, with the same weights each time."""
    folder = cache / f"llama-100m-{dtype}"
    if not (folder / "config.json").is_file():
        half = folder.with_name(f"{folder.name}.part-{os.getpid()}")
        _build(half, dtype)
        # Removes the remains of an interrupted build.
        shutil.rmtree(folder, ignore_errors=True)
        half.rename(folder)
    return folder


def _build(folder: Path, dtype: Dtype) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_trained_tokenizer(),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    torch.manual_seed(_SEED)
    # 12 layers of 7.1M parameters and 12.6M of embeddings: 97M in all.
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=dtype,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _trained_tokenizer() -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY - len(_CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = ["\n".join(pair) for pair in real_pairs()]
    tokenizer.train_from_iterator(sorted(texts), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _CONTROL_TOKENS])
    return tokenizer
