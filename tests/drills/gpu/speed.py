"""Tokens that a judge reads in a second, and the share of the GPU's arithmetic that this is."""

from typing import Any

from tests.drills.gpu.made import SHAPES, made_config
from tests.drills.gpu.scene import Engine, Finding, Scene
from tests.drills.gpu.starts import DUMMY

# Tokens of each order of a pair of MT-Bench, and how many of them are the same in all pairs.
TOKENS, SHARED = 785, 380
# Operations a second of dense matrix products in 16 bits, by the GPU's name as NVIDIA gives it.
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12}
# The share that docs/guides/scale.md computes with.
SHARE = 0.6
_WARM = 64
_READ_TOKENS = 800_000


def speed(scene: Scene) -> Finding:
    """Step 10: tokens a second, cold and with a shared beginning, and a pair on its own."""
    folder = scene.own_folder()
    shapes = ["tiny"] if scene.small else ["7B", "14B", "32B"]
    peak = next((p for name, p in PEAKS.items() if scene.gpus and name in str(scene.gpus)), None)
    figures: dict[str, Any] = {"tokens": TOKENS, "shared": SHARED, "peak": peak}
    said, shares = [], []
    for shape in shapes:
        if scene.device == "gpu" and 2 * SHAPES[shape].parameters > 0.85 * scene.memory_bytes:
            continue
        engine = scene.engine(made_config(folder / shape, shape), arguments=DUMMY)
        found = _measured(engine, shape, small=scene.small)
        figures[shape] = found
        cold = found["cold"]
        named = f"{shape} {cold['tokens_per_s']:,.0f} tokens a second"
        if peak is not None:
            shares.append(2 * SHAPES[shape].body * cold["tokens_per_s"] / peak)
            named += f", {shares[-1]:.1%} of the peak"
        said.append(named)
    return Finding(
        sentence=f"{'; '.join(said)} (aim {SHARE:.0%} of the peak)",
        held=all(share >= SHARE for share in shares),
        figures=figures,
    )


def _measured(engine: Engine, shape: str, *, small: bool) -> dict[str, Any]:
    prompts = 8 if small else int(_READ_TOKENS / TOKENS * min(1.0, 7e9 / SHAPES[shape].body))

    def ask(prompts: int, *, seed: int, shared: int = 0, at_once: int = 512) -> dict[str, Any]:
        found = engine.ask(
            what="tokens",
            tokens=TOKENS,
            vocabulary=SHAPES[shape].vocab_size,
            prompts=prompts,
            seed=seed,
            shared=shared,
            at_once=at_once,
        )
        each, seconds = found.pop("each"), found["seconds"]
        return found | {
            "pairs_per_s": prompts / 2 / seconds,
            "tokens_per_s": found["tokens_read"] / seconds,
            "p50_s": each[len(each) // 2],
            "p99_s": each[int(len(each) * 0.99)],
        }

    ask(min(_WARM, prompts), seed=1)
    return {
        "cold": ask(prompts, seed=2),
        "shared": ask(prompts, seed=3, shared=SHARED),
        "two prompts at a time": ask(min(200, prompts), seed=4, at_once=2),
    }
