"""The scores of a judge: against other programs, alone and in batches, and their head."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from app.core.noise import MOST_FLIPS, Noise
from app.core.preference import FloatArray, preference_from_gaps
from app.core.score import Score
from app.judges.prompts import PromptTemplate
from app.ports import LabelLogits
from app.wiring.engines import DEMO_FOLDER
from tests.benchmarks.texts import Pair
from tests.drills.gpu.scene import Engine, Finding, NotRunError, Scene
from tests.integration.engines.nested_judge import write_nested_judge
from tests.transformers_reference import TransformersEngine, TransformersOptions

# Largest accepted difference of p between the demo judge on a GPU and on a CPU, in float32.
SAME_P = 2e-3
# Accepted median difference of p from transformers in 16 bits, and share of equal winners.
MEDIAN_P, SAME_WINNER = 0.01, 0.99
_TOGETHER = 64


def demo_judge(scene: Scene) -> Finding:
    """Step 3: the demo judge has the probabilities of a forward pass on the CPU."""
    pairs = scene.pairs(20 if scene.small else 100)
    engine = scene.engine(DEMO_FOLDER / "model")
    ours = _p_bar(engine.gaps(pairs, together=_TOGETHER))
    scene.on_stage("the same in transformers on the CPU")
    theirs = _p_bar(_transformers(DEMO_FOLDER / "model", pairs, dtype="float32"))
    largest = float(np.abs(ours - theirs).max())
    return Finding(
        sentence=f"p differs by at most {largest:.1e} from transformers on the CPU in "
        f"{len(pairs)} pairs (aim {SAME_P:g})",
        held=largest <= SAME_P,
        figures={"largest_difference": largest, "pairs": len(pairs), "start": engine.started},
    )


def float32_head(scene: Scene) -> Finding:
    """Step 5: the workers compute logits in float32, also of a nested language model."""
    found = {scene.judge_name: scene.engine(scene.judge).started["head_dtype"]}
    if not scene.small:
        folder = write_nested_judge(scene.own_folder() / "nested")
        found["a language model in a multimodal one"] = scene.engine(folder).started["head_dtype"]
    return Finding(
        sentence=", ".join(f"{name}: {dtype}" for name, dtype in found.items()),
        held=set(found.values()) == {"float32"},
        figures={"head_dtypes": found},
    )


def distinct_gaps(scene: Scene) -> Finding:
    """Step 6: different prompts have different scores."""
    gaps = scene.engine(scene.judge).gaps(scene.pairs(50), together=_TOGETHER)
    both = [*gaps["forward"], *gaps["reverse"]]
    distinct = len(set(both))
    return Finding(
        sentence=f"{distinct} distinct gaps in {len(both)} prompts of {scene.judge_name}",
        held=distinct == len(both),
        figures={"prompts": len(both), "distinct": distinct},
    )


def against_transformers(scene: Scene) -> Finding:
    """Step 7: the same preferences as a plain forward pass in the same dtype."""
    pairs = scene.pairs(20 if scene.small else 200)
    engine = scene.engine(scene.judge)
    ours = _p_bar(engine.gaps(pairs, together=_TOGETHER))
    dtype = engine.started["dtype"]
    if scene.device == "gpu":
        scene.close()  # The GPU has no room for both.
    scene.on_stage(f"the same in transformers, {dtype}")
    device = "cuda" if scene.device == "gpu" else "cpu"
    theirs = _p_bar(_transformers(scene.judge, pairs, dtype=dtype, device=device))
    median = float(np.median(np.abs(ours - theirs)))
    winner = float(((ours > 0.5) == (theirs > 0.5)).mean())
    return Finding(
        sentence=f"{scene.judge_name} in {dtype}: p differs by {median:.1e} in the median (aim "
        f"{MEDIAN_P:g}), the winner is the same in {winner:.1%} (aim {SAME_WINNER:.0%})",
        held=median < MEDIAN_P and winner >= SAME_WINNER,
        figures={"median_difference": median, "same_winner": winner, "pairs": len(pairs)},
    )


def exactly_two_labels(scene: Scene) -> Finding:
    """Step 8: each label request returns its two labels, also beside requests for text."""
    found = scene.engine(scene.judge).ask(what="labels beside texts", pairs=scene.pairs(32))
    right = sum(ids == found["wanted"] for ids in found["returned"])
    texts = min(16, found["prompts"])
    return Finding(
        sentence=f"{right} of {found['prompts']} prompts returned exactly their two labels, beside "
        f"{found['texts']} texts",
        held=right == found["prompts"] and found["texts"] == texts,
        figures={"right": right, "prompts": found["prompts"], "texts": found["texts"]},
    )


def noise(scene: Scene) -> Finding:
    """Step 9: how much a score depends on the batch around it."""
    return _noise(scene, scene.engine(scene.judge))


def noise_with_invariance(scene: Scene) -> Finding:
    """Step 10: the same with vLLM's batch invariance."""
    if scene.device == "cpu":
        raise NotRunError("VLLM_BATCH_INVARIANT=1 ends vLLM's CPU build")
    return _noise(scene, scene.engine(scene.judge, environment={"VLLM_BATCH_INVARIANT": "1"}))


def _noise(scene: Scene, engine: Engine) -> Finding:
    pairs = scene.pairs(20 if scene.small else 200, seed=9)
    scene.on_stage(f"{len(pairs)} pairs alone, in {_TOGETHER}s and from the cache")
    asked = {
        "alone": engine.gaps(pairs, together=1, forget=True),
        f"in {_TOGETHER}s": engine.gaps(pairs, together=_TOGETHER, forget=True),
        "from the cache": engine.gaps(pairs, together=_TOGETHER),
    }
    # At a threshold that accepts half of the pairs, most pairs are near it.
    measured = Noise.of([_scores(found) for found in asked.values()], threshold=None)
    return Finding(
        sentence=f"gaps of {len(pairs)} pairs alone, in {_TOGETHER}s and from the cache differ by "
        f"{measured.largest:.1e} at most, {measured.p95:.1e} at the 95th percentile; "
        f"{measured.flip_share:.1%} get another verdict (warned above {MOST_FLIPS:.0%})",
        held=measured.warning is None,
        figures={
            **asdict(measured),
            "seconds": {way: found["seconds"] for way, found in asked.items()},
        },
    )


def _scores(found: dict[str, Any]) -> list[Score]:
    return [
        Score(gap_fwd=forward, gap_rev=reverse, label_mass=1.0)
        for forward, reverse in zip(found["forward"], found["reverse"], strict=True)
    ]


def _gap_matrix(found: dict[str, Any]) -> FloatArray:
    """Gaps of both orders, shape (2, n)."""
    return np.array([found["forward"], found["reverse"]], dtype=np.float64)


def _p_bar(found: dict[str, Any]) -> FloatArray:
    return preference_from_gaps(*_gap_matrix(found)).p_bar


def _transformers(
    model: Any, pairs: Sequence[Pair], *, dtype: str, device: str = "cpu"
) -> dict[str, Any]:
    """The gaps of a plain forward pass for each prompt."""
    import torch

    async def run() -> list[float]:
        engine = TransformersEngine(
            TransformersOptions(model=str(model), judge="reference", dtype=dtype)
        )
        template = PromptTemplate()
        prompts = [p for pair in pairs for p in template.both_orders(pair.comparison)]
        await engine.start(prompts[0])
        assert engine._model is not None
        engine._model.to(device)
        found = await engine.label_logits(prompts)
        await engine.stop()
        torch.cuda.empty_cache()
        return [each.a - each.b for each in found if isinstance(each, LabelLogits)]

    gaps = asyncio.run(run())
    if len(gaps) != 2 * len(pairs):
        raise RuntimeError("transformers did not judge every prompt")
    return {"forward": gaps[::2], "reverse": [-gap for gap in gaps[1::2]]}
