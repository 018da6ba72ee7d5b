"""A local model's files: fetched from the hub if needed, read, and digested."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from app.core.errors import StartupError
from app.settings import Settings, folder_or_id

_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt")
# Suffixes of configuration and tokenizer files.
_OTHER_SUFFIXES = (".json", ".txt", ".model", ".jinja")
# Copies of the weights in other formats; most repositories have some beside the safetensors.
_NEVER_FETCHED = (
    "*.pth",
    "*.onnx",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "original/*",
    "onnx/*",
    "consolidated*.safetensors",
)
_OLD_WEIGHTS = ("*.bin", "*.pt")
# Larger files are sampled, so that a start does not read 140 GB a second time.
_WHOLE_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**14
_BLOCKS = 1024
# The longest header that the safetensors format allows.
_LONGEST_HEADER = 100_000_000


def model_folder(settings: Settings) -> Path:
    """The folder with the files of SCOPE_MODEL, fetched from the Hugging Face hub where needed."""
    model, revision = folder_or_id(settings.model), settings.revision
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    with _fetching(model):
        path = Path(
            snapshot_download(
                model, revision=revision, ignore_patterns=[*_NEVER_FETCHED, *_OLD_WEIGHTS]
            )
        )
        if not list(path.glob("*.safetensors")):
            snapshot_download(model, revision=revision, ignore_patterns=list(_NEVER_FETCHED))
    return path


def architecture_before_fetch(settings: Settings) -> str:
    """The class of SCOPE_MODEL, of which only config.json is fetched."""
    model = folder_or_id(settings.model)
    folder = Path(model)
    if not folder.is_dir():
        from huggingface_hub import hf_hub_download

        with _fetching(model):
            folder = Path(hf_hub_download(model, "config.json", revision=settings.revision)).parent
    return architecture_of(folder) if (folder / "config.json").exists() else ""


@contextmanager
def _fetching(model: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        yield
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as exc:
        raise StartupError(
            f"SCOPE_MODEL={model} is not a folder and could not be fetched from the Hugging Face "
            f"hub ({type(exc).__name__}). Check the id and the network; for a gated model, accept "
            "its licence on the hub and set HF_TOKEN"
        ) from exc


def config_of(folder: Path) -> dict[str, Any]:
    """Reads a model's config.json; so do the functions below."""
    try:
        return cast(dict[str, Any], json.loads((folder / "config.json").read_text("utf-8")))
    except (OSError, ValueError) as exc:
        raise StartupError(f"{folder} has no readable config.json: it is not a model") from exc


def _configs_of(folder: Path) -> list[dict[str, Any]]:
    """A model's configuration, and that of its language model, if it is a multimodal one."""
    config = config_of(folder)
    return [config, config.get("text_config") or {}]


def architecture_of(folder: Path) -> str:
    """The class of a model; "" if config.json gives none."""
    architectures = config_of(folder).get("architectures") or [""]
    return str(architectures[0])


def outputs_of(folder: Path) -> int:
    """The number of outputs of a model for classification."""
    for described in _configs_of(folder):
        for name in ("id2label", "num_labels"):
            if name in described:
                number = described[name]
                return len(number) if isinstance(number, dict) else int(number)
    # The default of transformers.
    return 2


def checkpoint_dtype(folder: Path) -> str:
    """The dtype of a model's stored weights; "" if config.json gives none."""
    # A multimodal model may give only the dtype of its language model.
    for described in _configs_of(folder):
        dtype = described.get("dtype") or described.get("torch_dtype")
        if dtype:
            return cast(str, dtype)
    return ""


def is_quantized(folder: Path) -> bool:
    """Whether the stored weights are quantised."""
    described = any(config.get("quantization_config") for config in _configs_of(folder))
    return described or (folder / "hf_quant_config.json").exists()


def weight_bytes(folder: Path) -> int:
    """Size of all weight files of a model together."""
    return sum(each.stat().st_size for each in folder.iterdir() if each.suffix in _WEIGHT_SUFFIXES)


def weights_digest(folder: Path) -> str:
    """Digests configuration, tokenizer and weights, so that other weights are another judge.

    Files of up to 64 MiB are read whole. A larger one is read in 1,025 blocks of 16 KiB at equal
    distances, from its beginning to its end; of a safetensors file also the whole header, and the
    beginning of every tensor.

    The digest changes if a file is added, removed, renamed, cut or extended, or if it is replaced
    by the file of another model, even of a fine-tuned one. In a large file it notices every change
    that covers a 512th of the file in one piece, and every tensor in which all bytes differ. It may
    miss a change of a few weights, such as an edit of one row of a matrix.

    Returns:
        64 hexadecimal digits, independent of the path of the folder.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (*_WEIGHT_SUFFIXES, *_OTHER_SUFFIXES):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            for block in _blocks(path):
                digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    """Yields the parts of a file that are digested."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            yield file.read()
            return
        header, tensors = _safetensors_layout(file, size)
        yield header
        spread = [i * (size - _BLOCK_BYTES) // _BLOCKS for i in range(_BLOCKS + 1)]
        blocks = [(start, start + _BLOCK_BYTES) for start in spread]
        blocks += [(start, min(end, start + _BLOCK_BYTES)) for start, end in tensors]
        for start, end in sorted(blocks):
            file.seek(start)
            yield file.read(end - start)


def _safetensors_layout(file: BinaryIO, size: int) -> tuple[bytes, list[tuple[int, int]]]:
    """The header and the ranges of the tensors; empty if it is not a safetensors file."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_LONGEST_HEADER, size - 8):
        return b"", []
    header = file.read(length)
    try:
        entries = json.loads(header)
        offsets = [
            entry["data_offsets"] for name, entry in entries.items() if name != "__metadata__"
        ]
        tensors = [(8 + length + int(i), 8 + length + int(j)) for i, j in offsets]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return header, []
    return header, [(start, end) for start, end in tensors if 0 <= start < end <= size]
