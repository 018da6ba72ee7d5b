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
# Accepted distance from float32, in that of transformers in the judge's own dtype.
WORSE = 1.5
_TOGETHER = 64


def demo_judge(scene: Scene) -> Finding:
    """Step 2: the demo judge has the probabilities of a forward pass on the CPU."""
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
    """Step 4: the workers compute logits in float32, so different prompts differ in their scores.

    On a GPU the head of a language model nested in a multimodal one is looked at, too.
    """
    engine = scene.engine(scene.judge)
    heads = {scene.judge_name: engine.started["head_dtype"]}
    gaps = engine.gaps(scene.pairs(50), together=_TOGETHER)
    both = [*gaps["forward"], *gaps["reverse"]]
    distinct = len(set(both))
    if not scene.small:
        folder = write_nested_judge(scene.own_folder() / "nested")
        heads["a language model in a multimodal one"] = scene.engine(folder).started["head_dtype"]
    named = ", ".join(f"{name}: {dtype}" for name, dtype in heads.items())
    return Finding(
        sentence=f"{named}; {distinct} distinct gaps in {len(both)} prompts",
        held=set(heads.values()) == {"float32"} and distinct == len(both),
        figures={"head_dtypes": heads, "prompts": len(both), "distinct": distinct},
    )


def against_transformers(scene: Scene) -> Finding:
    """Step 5: not further from a forward pass in float32 than transformers in the same dtype."""
    pairs = scene.pairs(20 if scene.small else 100)
    engine = scene.engine(scene.judge)
    ours = _p_bar(engine.gaps(pairs, together=_TOGETHER))
    dtype = engine.started["dtype"]
    device = "cpu"
    if scene.device == "gpu":
        scene.close()  # The GPU has no room for both.
        device = "cuda"
    scene.on_stage(f"the same in transformers, {dtype} and float32")
    exact = _p_bar(_transformers(scene.judge, pairs, dtype="float32", device=device))
    theirs = _p_bar(_transformers(scene.judge, pairs, dtype=dtype, device=device))
    off, their_off = (float(np.median(np.abs(p - exact))) for p in (ours, theirs))
    return Finding(
        sentence=f"{scene.judge_name} in {dtype}: p differs by {off:.1e} in the median from "
        f"transformers in float32, and transformers in {dtype} by {their_off:.1e}",
        held=off <= max(SAME_P, WORSE * their_off),
        figures={"median": off, "transformers_median": their_off, "pairs": len(pairs)},
    )


def both_runners(scene: Scene) -> Finding:
    """Step 6: vLLM's model runner V2, which it takes on CUDA, has the gaps of V1."""
    if scene.device == "cpu":
        raise NotRunError("vLLM's CPU build has model runner V1 only")
    figures, said, held = {}, [], True
    models = {"the demo judge": DEMO_FOLDER / "model", scene.judge_name: scene.judge}
    for name, model in models.items():
        pairs = scene.pairs(100)
        found = []
        for setting in ("1", "0"):
            engine = scene.engine(model, environment={"VLLM_USE_V2_MODEL_RUNNER": setting})
            found.append(engine.gaps(pairs, together=_TOGETHER))
        off = np.abs(_gap_matrix(found[0]) - _gap_matrix(found[1]))
        p_off = np.abs(_p_bar(found[0]) - _p_bar(found[1]))
        figures[name] = {
            "gap_largest": float(off.max()),
            "gap_median": float(np.median(off)),
            "p_largest": float(p_off.max()),
        }
        held &= float(np.median(p_off)) <= SAME_P
        said.append(
            f"{name}: gaps differ by {np.median(off):.1e} in the median, {off.max():.1e} at most"
        )
    return Finding(sentence="; ".join(said), held=held, figures=figures)


def exactly_two_labels(scene: Scene) -> Finding:
    """Step 7: each label request returns its two labels, also beside requests for text."""
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
    """Step 8: how much a score depends on the batch around it."""
    return _noise(scene, scene.engine(scene.judge))


def noise_with_invariance(scene: Scene) -> Finding:
    """Step 9: the same with vLLM's batch invariance."""
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
