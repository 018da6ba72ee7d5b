"""Starts of judges: a large one, one on two GPUs, quantised ones, and the container."""

import json
import re
import shutil
import subprocess
import time

import numpy as np

from tests.drills.gpu.made import made_checkpoint, made_config
from tests.drills.gpu.scene import Finding, NotRunError, RefusedError, Scene
from tests.integration.processes.server import Server
from tests.patience import VLLM_START_S

DUMMY = {"load_format": "dummy"}
IMAGE = "scope-judge:gpu"
# Quantised checkpoints as their config.json describes them.
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
_BACKEND = re.compile(r"Using (\S+?) (?:attention )?backend")
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")


def large_judge(scene: Scene) -> Finding:
    """Step 4: a judge of 7B starts, cold and with its compiled kernels kept."""
    folder = scene.own_folder()
    model, arguments = scene.model, {}
    if scene.small or model is None:
        shape = "tiny" if scene.small else "7B"
        model, arguments = made_config(folder / f"made-{shape}", shape), DUMMY
    seconds: dict[str, float] = {}
    log = ""
    for name in ("cold", "warm"):
        scene.on_stage(f"{model.name}: {name} start")
        (folder / name).mkdir()
        settings = {
            "SCOPE_MODEL": str(model),
            "SCOPE_STORE_URL": "memory://",
            "SCOPE_VLLM_ARGS": json.dumps(arguments),
            # All that is compiled; the first start finds it empty.
            "VLLM_CACHE_ROOT": str(folder / "cache"),
        }
        begun = time.monotonic()
        with Server(folder / name, settings, start_timeout_s=VLLM_START_S) as server:
            pair = scene.pairs(1)[0]._asdict() | {"alpha": None}
            answer = server.client.post("/judge", json=pair)
            answer.raise_for_status()
            seconds[name] = time.monotonic() - begun
            log = server.log.read_text()
    backend, cache = _BACKEND.search(log), _CACHE.search(log)
    weights = "random weights" if arguments else "its own weights"
    return Finding(
        sentence=f"{model.name} with {weights}: first verdict {seconds['cold']:.0f} s after the "
        f"command, {seconds['warm']:.0f} s with its cache; backend "
        f"{backend[1] if backend else 'not logged'}, KV cache of "
        f"{cache[1] + ' tokens' if cache else 'a size that is not logged'}",
        held=True,
        figures={
            "seconds": seconds,
            "backend": backend and backend[1],
            "cache_tokens": cache and int(cache[1].replace(",", "")),
            "weights": weights,
        },
    )


def two_gpus(scene: Scene) -> Finding:
    """Step 14: a judge that two GPUs share has the scores that it has on one."""
    if len(scene.gpus) < 2:
        raise NotRunError(f"this machine has {len(scene.gpus) or 'no'} GPU, and it takes two")
    pairs = scene.pairs(100)
    one = scene.engine(scene.judge).gaps(pairs, together=64)
    two = scene.engine(scene.judge, tensor_parallel_size=2).gaps(pairs, together=64)
    largest = float(np.abs(np.subtract(one["forward"], two["forward"])).max())
    return Finding(
        sentence=f"{scene.judge_name} starts on two GPUs; gaps differ by {largest:.1e} at most",
        figures={"largest_difference": largest, "pairs": len(pairs)},
    )


def other_checkpoints(scene: Scene) -> Finding:
    """Step 15: quantised and float32 checkpoints, and the container, start or say why not."""
    folder = scene.own_folder()
    shape = "tiny" if scene.small else "1.5B"
    models = {
        "AWQ": made_config(folder / "awq", shape, dtype="float16", quantization=_AWQ),
        "FP8": made_config(folder / "fp8", shape, quantization=_FP8),
        "float32": made_checkpoint(
            folder / "float32", "tiny" if scene.small else "0.5B", dtype="float32"
        ),
    }
    outcomes = {}
    for name, model in models.items():
        dummy = {} if name == "float32" else {"arguments": DUMMY}
        try:
            engine = scene.engine(model, **dummy)
            engine.gaps(scene.pairs(1), together=1)
            outcomes[name] = f"judges in {engine.started['dtype']}"
        except RefusedError as exc:
            outcomes[name] = f"is refused: {_one_line(str(exc))}"
    scene.close()
    silent = [name for name, outcome in outcomes.items() if "root cause" in outcome]
    outcomes["the container"] = _container()
    return Finding(
        sentence="; ".join(f"{name} {outcome}" for name, outcome in outcomes.items()),
        # A refusal that gives no reason helps nobody.
        held=not silent,
        figures=outcomes,
    )


def _container() -> str:
    """The outcome of the image's own check that vLLM's CUDA works in it."""
    if shutil.which("docker") is None:
        return "was not run: docker is not installed"
    present = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True)
    if present.returncode:
        why = _one_line(present.stderr.decode())
        return f"was not run: docker has no image {IMAGE}, or does not run ({why})"
    check = "from app.judges.engines.vllm_build import check_gpus; check_gpus(1)"
    command = ["docker", "run", "--rm", "--gpus", "all", "--entrypoint", "python3", IMAGE]
    done = subprocess.run([*command, "-c", check], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{IMAGE} cannot use the GPUs: {_one_line(done.stderr)}")
    return "sees the GPUs"


def _one_line(text: str, longest: int = 200) -> str:
    """The last line of a message, shortened."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "without a message"
    return last if len(last) <= longest else last[: longest - 3] + "..."
