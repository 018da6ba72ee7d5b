"""The adapter: training starts at the original judge, and merging gives the trained judge."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.tuned_judge import adapter
from tests.tuned_judge.adapter import add_adapter, merge, save_adapter


def small_model() -> LlamaForCausalLM:
    torch.manual_seed(1)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=adapter.FIRST_LAYER + 2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


def logits(model: LlamaForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        found = model(torch.arange(20)[None]).logits
    assert found is not None
    return found


def test_a_new_adapter_changes_no_answer_and_a_merged_one_answers_as_trained(
    tmp_path: Path,
) -> None:
    original, trained = small_model(), small_model()
    layers = add_adapter(trained)
    # Seven linear layers in each of the two upper layers.
    assert len(layers) == 14
    assert torch.equal(logits(trained), logits(original))
    with torch.no_grad():
        for layer in layers.values():
            # Numbers that bfloat16 has exactly.
            layer.down.copy_(layer.down.bfloat16())
            layer.up.copy_((torch.randn_like(layer.up) / 10).bfloat16())
    save_adapter(layers, tmp_path / "adapter.safetensors")
    state = original.state_dict()
    merge(state, tmp_path / "adapter.safetensors")
    original.load_state_dict(state)
    assert not torch.allclose(logits(original), logits(small_model()), atol=0.01)
    assert torch.allclose(logits(original), logits(trained), atol=1e-4)


def test_only_the_upper_layers_are_trained() -> None:
    model = small_model()
    add_adapter(model)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names
    assert {int(name.split(".")[2]) for name in names} == {
        adapter.FIRST_LAYER,
        adapter.FIRST_LAYER + 1,
    }


def test_the_shipped_adapter_is_small_and_changes_every_linear_layer_of_the_upper_layers() -> None:
    assert adapter.FILE.stat().st_size <= 10 * 10**6
    tensors = load_file(adapter.FILE)
    # SmolLM2-135M has 30 layers with seven linear layers each, and each change is two matrices.
    assert len(tensors) == 2 * 7 * (30 - adapter.FIRST_LAYER)
    assert all(adapter.RANK in tensor.shape and tensor.any() for tensor in tensors.values())
