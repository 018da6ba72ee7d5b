"""Model files: the digest notices changes, and wrong models are refused."""

import itertools
import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from app.core.errors import StartupError
from app.judges.engines import model_files
from app.judges.engines.model_files import checkpoint_dtype, model_folder, weights_digest
from app.judges.engines.rendering import load_tokenizer
from app.settings import Settings


def a_model(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_the_same_files_have_the_same_digest_wherever_they_are(tmp_path: Path) -> None:
    first = a_model(tmp_path / "first", b"weights")
    assert weights_digest(first) == weights_digest(a_model(tmp_path / "second", b"weights"))
    (first / "README.md").write_text("does not count")
    assert weights_digest(first) == weights_digest(tmp_path / "second")


def test_other_weights_have_another_digest(tmp_path: Path) -> None:
    first = weights_digest(a_model(tmp_path / "first", b"weights"))
    assert first != weights_digest(a_model(tmp_path / "second", b"weightz"))


INVERSE = bytes(255 - i for i in range(256))


class LargeModel(NamedTuple):
    """A model with one safetensors file that is too large to be read whole.

    Args:
        folder: Folder of the file.
        content: Content of the file.
        data: Offset of the first tensor in the file.
        tensors: Start and exclusive end of each tensor, counted from `data`.
    """

    folder: Path
    content: bytes
    data: int
    tensors: list[tuple[int, int]]

    def digest_with(self, content: bytes) -> str:
        """The digest after the file's content is replaced."""
        (self.folder / "model.safetensors").write_bytes(content)
        return weights_digest(self.folder)


def in_safetensors(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LargeModel:
    """A model, with blocks and limit scaled down about a thousand times."""
    monkeypatch.setattr(model_files, "_WHOLE_BYTES", 2**16)
    monkeypatch.setattr(model_files, "_BLOCK_BYTES", 2**4)
    sizes = [*range(1, 40), 120_000, 20, *range(9000, 9030), 7]
    ends = list(itertools.accumulate(sizes))
    tensors = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    header = {f"t{i}": {"dtype": "I8", "data_offsets": each} for i, each in enumerate(tensors)}
    data = random.Random(4).randbytes(ends[-1])
    content = in_safetensors({"__metadata__": {"format": "pt"}, **header}, data)
    folder = a_model(tmp_path / "large", content)
    return LargeModel(folder, content, len(content) - len(data), tensors)


def inverted(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + content[start:end].translate(INVERSE) + content[end:]


def test_a_change_of_a_512th_in_one_piece_is_noticed_wherever_it_is(large: LargeModel) -> None:
    digest = weights_digest(large.folder)
    length = len(large.content) // 512 + 1
    for start in range(0, len(large.content) - length, 8009):
        assert large.digest_with(inverted(large.content, start, start + length)) != digest


def test_every_replaced_tensor_is_noticed(large: LargeModel) -> None:
    digest = weights_digest(large.folder)
    read = sum(map(len, model_files._blocks(large.folder / "model.safetensors")))
    assert read < len(large.content) / 10
    for start, end in large.tensors:
        changed = inverted(large.content, large.data + start, large.data + end)
        assert large.digest_with(changed) != digest, (start, end)


def test_a_changed_header_a_changed_end_and_another_length_are_noticed(large: LargeModel) -> None:
    digest = weights_digest(large.folder)
    content, size = large.content, len(large.content)
    for start in (0, 8, large.data // 2, large.data - 1, size - 1):
        assert large.digest_with(inverted(content, start, start + 1)) != digest
    assert large.digest_with(content[:-1]) != digest
    assert large.digest_with(content + b"\0") != digest
    assert large.digest_with(content) == digest


@pytest.mark.parametrize(
    "beginning",
    [
        b"\xff" * 8,
        b"\0" * 8,
        b"\x05\0\0\0\0\0\0\0[[[[[",
        in_safetensors([]),
        in_safetensors({"a": {}}),
        in_safetensors({"a": None}),
        *(in_safetensors({"a": {"data_offsets": each}}) for each in ([9], [9, 1e99], "no", [9, 3])),
    ],
)
def test_a_large_file_with_a_broken_header_has_a_digest(
    beginning: bytes, large: LargeModel
) -> None:
    assert len(large.digest_with(beginning + large.content)) == 64


def test_the_dtype_is_the_checkpoints_own(tmp_path: Path) -> None:
    assert checkpoint_dtype(a_model(tmp_path / "model", b"")) == "bfloat16"
    with pytest.raises(StartupError, match=r"config\.json"):
        checkpoint_dtype(tmp_path)


def test_a_model_that_is_neither_a_folder_nor_on_the_hub_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert model_folder(Settings(model=str(tmp_path))) == tmp_path
    for name in ("no-such-model-here", "not a/valid/id"):
        with pytest.raises(StartupError, match=f"SCOPE_MODEL={name}"):
            model_folder(Settings(model=name))


def test_a_folder_without_a_chat_template_is_no_judge(tmp_path: Path) -> None:
    from tests.demo_judge.tokenizer import build_tokenizer

    with pytest.raises(StartupError, match="no tokenizer"):
        load_tokenizer(str(tmp_path))
    tokenizer = build_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(StartupError, match="no chat template"):
        load_tokenizer(str(tmp_path))
