"""Judges that need no download: the shapes of real models with random weights."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.wiring.engines import DEMO_FOLDER

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
# Tokens of the demo judge's tokenizer, which the made judges use.
_END_OF_TEXT, _PAD = 379, 377


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes of a model of the Qwen2 architecture, by the names of its config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int = 152064
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 8192

    @property
    def body(self) -> int:
        """Number of weights that every token meets: no embeddings and head, biases and norms."""
        head = self.hidden_size // self.num_attention_heads
        attention = 2 * self.hidden_size * (self.hidden_size + head * self.num_key_value_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        return self.num_hidden_layers * layer

    @property
    def parameters(self) -> int:
        """Number of weights, without biases and norms."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.body + embeddings


# The config.json of Qwen2.5-Instruct in each size.
SHAPES = {
    "0.5B": Shape(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=151936,
        tie_word_embeddings=True,
    ),
    "7B": Shape(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
    ),
    "14B": Shape(
        hidden_size=5120,
        intermediate_size=13824,
        num_hidden_layers=48,
        num_attention_heads=40,
        num_key_value_heads=8,
    ),
    "32B": Shape(
        hidden_size=5120,
        intermediate_size=27648,
        num_hidden_layers=64,
        num_attention_heads=40,
        num_key_value_heads=8,
    ),
    # For a rehearsal on a CPU.
    "tiny": Shape(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=384,
        # On a CPU a prompt is read in one step, so the context is at most the step's tokens.
        max_position_embeddings=2048,
    ),
}


def made_config(folder: Path, shape: str) -> Path:
    """A folder with config and tokenizer and without weights, for vLLM's `load_format=dummy`."""
    folder.mkdir(parents=True)
    for name in _TOKENIZER:
        shutil.copy(DEMO_FOLDER / "model" / name, folder)
    config: dict[str, Any] = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **asdict(SHAPES[shape]),
        "bos_token_id": None,
        "eos_token_id": _END_OF_TEXT,
        "pad_token_id": _PAD,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        # More than the size of a normal start: prompts then differ in their scores.
        "initializer_range": 0.06,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


def made_checkpoint(folder: Path, shape: str, *, seed: int = 7) -> Path:
    """A folder with a whole model: two programs that load it have the same weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    made_config(folder, shape)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder
