"""A model's files: fetched from the hub where they are not here, and digested."""

import bisect
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from app.core.errors import StartupError

_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt")
# Configuration and tokenizer, in all the forms that there are.
_OTHER_SUFFIXES = (".json", ".txt", ".model", ".jinja")
# Copies of the weights in other formats, which most repositories hold beside the safetensors.
_NEVER_FETCHED = (
    *("*.pth", "*.onnx", "*.gguf", "*.h5", "*.msgpack"),
    *("original/*", "onnx/*", "consolidated*.safetensors"),
)
_OLD_WEIGHTS = ("*.bin", "*.pt")
# Larger files are sampled: 140 GB need not be read a second time at every start.
_WHOLE_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**14
_BLOCKS = 1024
# The safetensors format allows no longer header.
_LONGEST_HEADER = 100_000_000


def model_folder(model: str, *, revision: str | None) -> Path:
    """The folder with a model's files, fetched from the Hugging Face hub where needed.

    Args:
        model: A folder, or a Hugging Face id.
        revision: Branch, tag or commit on the hub; None for its default branch.

    Raises:
        StartupError: Neither a folder nor a model that can be fetched.
    """
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = snapshot_download(
            model, revision=revision, ignore_patterns=[*_NEVER_FETCHED, *_OLD_WEIGHTS]
        )
        if not list(Path(path).glob("*.safetensors")):
            path = snapshot_download(model, revision=revision, ignore_patterns=list(_NEVER_FETCHED))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as exc:
        raise StartupError(
            f"SCOPE_MODEL={model} is no folder, and could not be fetched from the Hugging Face hub "
            f"({type(exc).__name__}). Check the id and the network; for a gated model, accept its "
            "licence on the hub and set HF_TOKEN"
        ) from exc
    return Path(path)


def checkpoint_dtype(folder: Path) -> str:
    """The dtype that a model's weights are stored in, as config.json says; "" if it does not.

    Raises:
        StartupError: There is no readable config.json.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise StartupError(f"{folder} has no readable config.json: it holds no model") from exc
    return cast(str, config.get("dtype") or config.get("torch_dtype") or "")


def weights_digest(folder: Path) -> str:
    """Digests configuration, tokenizer and weights, so that other weights are another judge.

    Files of up to 64 MiB are read whole. A larger one is read at its first and last 16 KiB and in
    1,024 blocks of 16 KiB, one at a pseudo-random place in each 1,024th of the file; the places
    follow from the file's name and size. Of a safetensors file the whole header is read, too, and
    a block in every tensor that the others miss.

    It notices a file that was added, removed, renamed, cut, extended, or replaced by one of another
    model, also where that model was only fine-tuned; in a large file every change that covers a
    512th of it in one piece, every change of the first and the last 16 KiB, and in safetensors
    every change of the header and every tensor of which all bytes differ.
    It may miss a change of a few weights, such as an edit of one row of a matrix, and it misses a
    change that was made for the purpose of keeping the digest, since the places are no secret.

    Returns:
        64 hexadecimal digits; the same for the same files wherever the folder is.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (*_WEIGHT_SUFFIXES, *_OTHER_SUFFIXES):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            for block in _blocks(path):
                digest.update(block)
    return digest.hexdigest()


class _Extent(NamedTuple):
    """A stretch of a file, in bytes; `end` is behind its last byte."""

    start: int
    end: int


def _blocks(path: Path) -> Iterator[bytes]:
    """The parts of a file that are digested."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            yield file.read()
            return
        for extent in _sampled(file, path, size):
            file.seek(extent.start)
            yield file.read(extent.end - extent.start)


def _sampled(file: BinaryIO, path: Path, size: int) -> list[_Extent]:
    spread = _spread(path.name, size)
    if path.suffix != ".safetensors":
        return spread
    header, tensors = _safetensors_layout(file, size)
    starts = [extent.start for extent in spread]
    missed = []
    for tensor in tensors:
        i = bisect.bisect_left(starts, tensor.start)
        # A block that only ends in the tensor may hold a single byte of it, the same by chance.
        if i == len(starts) or spread[i].end > tensor.end:
            missed.append(_middle(tensor))
    return [*header, *spread, *missed]


def _spread(name: str, size: int) -> list[_Extent]:
    """The first and the last block, and one in each of `_BLOCKS` equal parts."""
    rng = random.Random(f"{name} {size}")
    places = [0, size - _BLOCK_BYTES]
    for i in range(_BLOCKS):
        start, end = i * size // _BLOCKS, (i + 1) * size // _BLOCKS
        # Of `Random`, only random() is promised to give the same numbers in every Python.
        places.append(start + int(rng.random() * (end - start - _BLOCK_BYTES)))
    return [_Extent(place, place + _BLOCK_BYTES) for place in sorted(places)]


def _middle(tensor: _Extent) -> _Extent:
    start = max(tensor.start, (tensor.start + tensor.end - _BLOCK_BYTES) // 2)
    return _Extent(start, min(tensor.end, start + _BLOCK_BYTES))


def _safetensors_layout(file: BinaryIO, size: int) -> tuple[list[_Extent], list[_Extent]]:
    """The header of a safetensors file, and where its tensors are; neither if it is none."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_LONGEST_HEADER, size - 8):
        return [], []
    header = _Extent(0, 8 + length)
    try:
        found = json.loads(file.read(length))
        offsets = [entry["data_offsets"] for name, entry in found.items() if name != "__metadata__"]
        tensors = [_Extent(header.end + int(i), header.end + int(j)) for i, j in offsets]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return [header], []
    inside = [each for each in tensors if header.end <= each.start < each.end <= size]
    return [header], sorted(inside)
