"""The tuned judge's checkpoint: SmolLM2-135M-Instruct with the adapter added to its weights."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.real_judge import CACHE, put, real_judge
from tests.tuned_judge.adapter import FILE, merge

# The beginning of the judge's own answer, with which it was trained.
PREFILL = "[["


def tuned_judge(cache: Path = CACHE, adapter: Path = FILE) -> Path:
    """Returns the folder of the checkpoint in float32; makes it on the first call.

    Args:
        cache: Folder that keeps the checkpoint, one for each adapter.
        adapter: The adapter's file.

    Raises:
        UnavailableJudgeError: The judge that the adapter changes cannot be had.
    """
    digest = hashlib.sha256(adapter.read_bytes()).hexdigest()[:12]
    folder = cache / f"smollm2-135m-tuned-{digest}"
    if (folder / "config.json").is_file():
        return folder
    from safetensors.torch import load_file, save_file

    base = real_judge(cache)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        part = Path(made, "checkpoint")
        shutil.copytree(base, part, ignore=shutil.ignore_patterns("*.safetensors"))
        state = load_file(base / "model.safetensors")
        merge(state, adapter)
        save_file(state, part / "model.safetensors", metadata={"format": "pt"})
        put(part, folder)
    return folder
