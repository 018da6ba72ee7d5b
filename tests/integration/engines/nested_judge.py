"""A tiny random judge whose language model is nested in a multimodal one, as in Gemma 3."""

import json
from pathlib import Path

from app.judges.engines.rendering import load_tokenizer
from app.settings import DEMO_FOLDER

CONTEXT_TOKENS = 16_384
_HIDDEN = 64


def write_nested_judge(folder: Path) -> Path:
    """Writes a 16-bit checkpoint whose scores tie if its head computes in 16 bits.

    Qwen2-Audio wraps Qwen2 as Gemma 3 wraps its language model, and unlike Gemma 3 it needs no
    torchvision. The logits of both labels are near 13, where numbers of 16 bits are 1/16 apart.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = load_tokenizer(str(DEMO_FOLDER / "model"))
    torch.manual_seed(0)
    language = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    model = Qwen2ForCausalLM(language).to(torch.bfloat16)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings.normal_(0.0, 1.0)
        # One direction that all prompts share makes all logits large.
        embeddings[:, 0] = 16.0
        head = model.get_output_embeddings().weight
        head.normal_(0.0, 0.3)
        head[:, 0] = 4.0
    folder.mkdir()
    tokenizer.save_pretrained(folder)
    weights = {f"language_model.{name}": each for name, each in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen2AudioForConditionalGeneration"],
        "model_type": "qwen2_audio",
        "dtype": "bfloat16",
        "audio_token_index": 7,
        "text_config": language.to_dict(),
        "audio_config": {
            "model_type": "qwen2_audio_encoder",
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "num_mel_bins": 16,
        },
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
