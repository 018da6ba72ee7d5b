"""The start of a large judge."""

import json
import re
import time

from tests.drills.gpu.made import made_config
from tests.drills.gpu.scene import Finding, Scene
from tests.integration.processes.server import Server
from tests.patience import VLLM_START_S

DUMMY = {"load_format": "dummy"}
_BACKEND = re.compile(r"Using (\S+?) (?:attention )?backend")
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")


def large_judge(scene: Scene) -> Finding:
    """Step 3: a judge of 7B starts, cold and with its compiled kernels kept."""
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
