"""A local model's files: fetched from the hub if needed, opened for a judge, and digested."""

import asyncio
import bisect
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from app.core.errors import StartupError
from app.judges.engines.rendering import LabelTokens, PromptRenderer, load_tokenizer
from app.judges.engines.thinking import PLAIN, UseOfTemplate
from app.ports import ANY_LENGTH, EngineIdentity, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalModel:
    """A judge's model on this machine, with its tokenizer checked and its weights not yet loaded.

    Args:
        folder: Folder of the model's files.
        tokenizer: Tokenizer with a chat template.
        labels: Token ids of the two labels after the judge's prompt.
        chat_frame: Text that the chat template puts around every user message.
        use: Variables of the chat template, and whether the judge thinks.
    """

    folder: Path
    tokenizer: "PreTrainedTokenizerBase"
    labels: LabelTokens
    chat_frame: str
    use: UseOfTemplate

    @classmethod
    async def open(
        cls,
        model: str,
        prompt: Prompt,
        *,
        revision: str | None,
        use: UseOfTemplate = PLAIN,
    ) -> "LocalModel":
        """Fetches the files if needed and finds the label tokens; takes seconds once they are here.

        Engines call this first: a wrong tokenizer is reported before minutes of loading weights.

        Args:
            model: A folder, or a Hugging Face id.
            prompt: Any prompt of the judge's template.
            revision: Branch, tag or commit on the hub; None for the default branch.
            use: Variables of the chat template, and whether the judge thinks.

        Raises:
            StartupError: There is no such model, or it cannot be a judge with this prompt.
        """
        folder = await asyncio.to_thread(model_folder, model, revision=revision)
        tokenizer = load_tokenizer(str(folder))
        # The longest prompt is known only once the engine has loaded the model.
        renderer = PromptRenderer(tokenizer, max_prompt_tokens=ANY_LENGTH, use=use)
        labels = renderer.label_tokens(prompt)
        return cls(
            folder=folder,
            tokenizer=tokenizer,
            labels=labels,
            chat_frame=renderer.chat_frame(prompt.system),
            use=use,
        )

    def renderer(self, context_tokens: int) -> PromptRenderer:
        """A renderer whose longest prompt leaves one token of the context for the answer."""
        return PromptRenderer(self.tokenizer, max_prompt_tokens=context_tokens - 1, use=self.use)

    async def identity(self, judge: str, *, dtype: str, context_tokens: int) -> EngineIdentity:
        """The identity of the judge that this model is.

        Args:
            judge: The judge's name in answers.
            dtype: Dtype in which the engine runs the weights.
            context_tokens: Context in tokens, prompt and answer together.
        """
        return EngineIdentity(
            judge=judge,
            model=judge,
            weights=await asyncio.to_thread(weights_digest, self.folder),
            chat_frame=self.chat_frame,
            label_tokens=(self.labels.a, self.labels.b),
            dtype=dtype,
            max_prompt_tokens=context_tokens - 1,
        )


def model_folder(model: str, *, revision: str | None) -> Path:
    """The folder with a model's files, fetched from the Hugging Face hub where needed.

    Args:
        model: A folder, or a Hugging Face id.
        revision: Branch, tag or commit on the hub; None for the default branch.

    Raises:
        StartupError: The model is not a folder, and the hub does not provide it.
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
        raise _not_fetched(model, exc) from exc
    return Path(path)


def architecture_before_fetch(model: str, *, revision: str | None) -> str:
    """Reads the class of a model, of which only config.json is fetched; "" if it gives none.

    Args:
        model: A folder, or a Hugging Face id.
        revision: Branch, tag or commit on the hub; None for the default branch.

    Raises:
        StartupError: The hub does not provide the model.
    """
    folder = Path(model)
    if not folder.is_dir():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )

        try:
            folder = Path(hf_hub_download(model, "config.json", revision=revision)).parent
        except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as exc:
            raise _not_fetched(model, exc) from exc
    return architecture_of(folder) if (folder / "config.json").exists() else ""


def _not_fetched(model: str, reason: Exception) -> StartupError:
    return StartupError(
        f"SCOPE_MODEL={model} is not a folder and could not be fetched from the Hugging Face hub "
        f"({type(reason).__name__}). Check the id and the network; for a gated model, accept its "
        "licence on the hub and set HF_TOKEN"
    )


def config_of(folder: Path) -> dict[str, Any]:
    """Reads a model's config.json.

    Raises:
        StartupError: There is no readable config.json.
    """
    try:
        return cast(dict[str, Any], json.loads((folder / "config.json").read_text("utf-8")))
    except (OSError, ValueError) as exc:
        raise StartupError(f"{folder} has no readable config.json: it is not a model") from exc


def architecture_of(folder: Path) -> str:
    """Reads the class of a model from config.json; "" if it gives none.

    Raises:
        StartupError: There is no readable config.json.
    """
    architectures = config_of(folder).get("architectures") or [""]
    return str(architectures[0])


def outputs_of(folder: Path) -> int:
    """Reads the number of outputs of a model for classification from config.json.

    Raises:
        StartupError: There is no readable config.json.
    """
    config = config_of(folder)
    for described in (config, config.get("text_config") or {}):
        for name in ("id2label", "num_labels"):
            if name in described:
                number = described[name]
                return len(number) if isinstance(number, dict) else int(number)
    # The default of transformers.
    return 2


def checkpoint_dtype(folder: Path) -> str:
    """Reads from config.json the dtype of a model's stored weights; "" if it gives none.

    Raises:
        StartupError: There is no readable config.json.
    """
    config = config_of(folder)
    # A multimodal model may give only the dtype of its language model.
    for described in (config, config.get("text_config") or {}):
        dtype = described.get("dtype") or described.get("torch_dtype")
        if dtype:
            return cast(str, dtype)
    return ""


def is_quantized(folder: Path) -> bool:
    """Whether the stored weights are quantised.

    Raises:
        StartupError: There is no readable config.json.
    """
    config = config_of(folder)
    return (
        any(
            described.get("quantization_config")
            for described in (config, config.get("text_config") or {})
        )
        or (folder / "hf_quant_config.json").exists()
    )


def nests_language_model(folder: Path) -> bool:
    """Whether the language model is a part of the model, as in multimodal models.

    Raises:
        StartupError: There is no readable config.json.
    """
    nested = ("text_config", "llm_config", "language_config", "thinker_config")
    return any(name in config_of(folder) for name in nested)


def weight_bytes(folder: Path) -> int:
    """Size of all weight files of a model together."""
    return sum(each.stat().st_size for each in folder.iterdir() if each.suffix in _WEIGHT_SUFFIXES)


def weights_digest(folder: Path) -> str:
    """Digests configuration, tokenizer and weights, so that other weights are another judge.

    Files of up to 64 MiB are read whole. A larger one is read at its first and last 16 KiB and in
    1,024 blocks of 16 KiB, one at a pseudo-random place in each 1,024th of the file; the places
    follow from the file's name and size. In a safetensors file the whole header is read, too, and
    one block in every tensor that contains no other block.

    The digest changes if a file is added, removed, renamed, cut or extended, or if it is replaced
    by the file of another model, even of a fine-tuned one. In a large file it notices every change
    that covers a 512th of the file in one piece, and every change of the first and the last 16 KiB;
    in safetensors also every change of the header and every tensor in which all bytes differ.
    It may miss a change of a few weights, such as an edit of one row of a matrix. It does not
    protect against an attacker: the places of the blocks are public.

    Returns:
        64 hexadecimal digits, independent of the path of the folder.

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
    """A range of bytes in a file; `end` is exclusive."""

    start: int
    end: int


def _blocks(path: Path) -> Iterator[bytes]:
    """Yields the blocks of a file that are digested."""
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
        # A block that only ends in the tensor may share one byte with it, equal by chance.
        if i == len(starts) or spread[i].end > tensor.end:
            missed.append(_middle(tensor))
    return [*header, *spread, *missed]


def _spread(name: str, size: int) -> list[_Extent]:
    """The first and the last block, and one block in each of `_BLOCKS` equal parts."""
    rng = random.Random(f"{name} {size}")
    places = [0, size - _BLOCK_BYTES]
    for i in range(_BLOCKS):
        start, end = i * size // _BLOCKS, (i + 1) * size // _BLOCKS
        # Python guarantees the same numbers in every version only for Random.random().
        places.append(start + int(rng.random() * (end - start - _BLOCK_BYTES)))
    return [_Extent(place, place + _BLOCK_BYTES) for place in sorted(places)]


def _middle(tensor: _Extent) -> _Extent:
    start = max(tensor.start, (tensor.start + tensor.end - _BLOCK_BYTES) // 2)
    return _Extent(start, min(tensor.end, start + _BLOCK_BYTES))


def _safetensors_layout(file: BinaryIO, size: int) -> tuple[list[_Extent], list[_Extent]]:
    """The ranges of the header and of the tensors; empty if it is not a safetensors file."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_LONGEST_HEADER, size - 8):
        return [], []
    header = _Extent(0, 8 + length)
    try:
        entries = json.loads(file.read(length))
        offsets = [
            entry["data_offsets"] for name, entry in entries.items() if name != "__metadata__"
        ]
        tensors = [_Extent(header.end + int(i), header.end + int(j)) for i, j in offsets]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return [header], []
    inside = [tensor for tensor in tensors if header.end <= tensor.start < tensor.end <= size]
    return [header], sorted(inside)
