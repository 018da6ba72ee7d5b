"""The adapter: low-rank changes of the weights of the judge's upper layers."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import linear

FILE = Path(__file__).with_name("adapter.safetensors")
RANK = 16
# Only these layers are trained, so that gradients need not pass the layers below them.
FIRST_LAYER = 10
# Changes of the weights are this much larger than the product of the two matrices.
_SCALE = 2.0


class LowRankLinear(nn.Module):  # type: ignore[misc]
    """A frozen linear layer with a trainable change of low rank, zero at first.

    Args:
        base: The frozen layer, without a bias.
    """

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """The frozen layer's output plus that of the change."""
        low = linear(x, self.down.to(x.dtype))
        changed: Tensor = self.base(x) + linear(low, _SCALE * self.up.to(x.dtype))
        return changed


def add_adapter(model: nn.Module) -> dict[str, LowRankLinear]:
    """Freezes a Llama and makes the linear layers of its upper layers trainable, in place.

    Returns:
        The name of each weight that is changed -> its layer.
    """
    model.requires_grad_(False)
    added = {}
    for index, layer in enumerate(model.get_submodule("model.layers").children()):
        if index < FIRST_LAYER:
            continue
        for part_name, part in layer.named_children():
            for name, base in list(part.named_children()):
                if isinstance(base, nn.Linear):
                    setattr(part, name, LowRankLinear(base))
                    weight = f"model.layers.{index}.{part_name}.{name}.weight"
                    added[weight] = part.get_submodule(name)
    return added


def save_adapter(layers: dict[str, LowRankLinear], file: Path) -> None:
    """Writes the two matrices of each weight's change in bfloat16."""
    tensors = {}
    for weight, layer in layers.items():
        tensors[f"{weight}.down"] = layer.down.detach().bfloat16()
        tensors[f"{weight}.up"] = (_SCALE * layer.up.detach()).bfloat16()
    fresh = file.with_suffix(".new")
    save_file(tensors, fresh)
    fresh.replace(file)


def merge(state: dict[str, Tensor], file: Path) -> None:
    """Adds an adapter's changes to the float32 weights of a checkpoint, in place."""
    tensors = load_file(file)
    for name in tensors:
        weight, _, side = name.rpartition(".")
        if side == "up":
            state[weight] += tensors[name].float() @ tensors[f"{weight}.down"].float()
