"""Tiny random reward models, and their rewards by transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from app.core.comparison import Turn
from app.judges.engines.rendering import load_tokenizer
from app.ports import Conversation
from app.settings import DEMO_FOLDER
from app.wiring.startup import bundled_comparisons

CONTEXT_TOKENS = 512


def write_reward_model(folder: Path, *, dtype: Literal["float32", "bfloat16"]) -> Path:
    """Writes a checkpoint with random weights whose rewards differ by several units."""
    import torch
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    tokenizer = load_tokenizer(str(DEMO_FOLDER / "model"))
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        # vLLM's CPU build has no kernel for 16.
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
    )
    model = Qwen3ForSequenceClassification(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rewards_by_transformers(folder: Path, conversations: Sequence[Conversation]) -> list[float]:
    """The rewards in float32, one conversation at a time."""
    import torch
    from transformers import AutoModelForSequenceClassification

    tokenizer = load_tokenizer(str(folder))
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    rewards = []
    for conversation in conversations:
        messages = [{"role": turn.role, "content": turn.content} for turn in conversation]
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        with torch.no_grad():
            rewards.append(model(torch.tensor([ids])).logits.item())
    return rewards


def conversation(question: str, response: str) -> Conversation:
    return (Turn("user", question), Turn("assistant", response))


def conversations() -> list[Conversation]:
    """Both responses of 20 of the bundled pairs."""
    return [
        conversation(pair.question[0].content, response)
        for pair in bundled_comparisons()[:20]
        for (response,) in (pair.response_a, pair.response_b)
    ]
