"""The file of a backup is refused unless it is complete and unchanged."""

import io
import json

import pytest

from app.core.errors import InvalidRequestError
from app.ports import AuditsPart, ChangePart, SecretPart, StoredChange, StorePart
from app.service.backup.lines import BackupWriter, Counts, check, parts_in

PARTS: list[StorePart] = [
    ChangePart(name="mine", change=StoredChange(number=1, record="é", undo="\0")),
    SecretPart(secret=bytes(range(32))),
    AuditsPart(entries=[(1, "{}"), (2, "裁判")]),
]


def written(parts: list[StorePart] = PARTS) -> bytes:
    file = io.BytesIO()
    writer = BackupWriter(file, release="0.3.0", at="2026-11-23T03:00:00Z")
    for part in parts:
        writer.add(part)
    writer.close()
    return file.getvalue()


def refusal(content: bytes) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        check(io.BytesIO(content), "night.jsonl")
    return refused.value.detail


def test_a_backup_is_described_by_its_first_and_last_line() -> None:
    described = check(io.BytesIO(written()), "night.jsonl")
    assert (described.release, described.at) == ("0.3.0", "2026-11-23T03:00:00Z")
    assert described.counts == Counts(sets=0, changes=1, audits=2)
    assert list(parts_in(io.BytesIO(written()))) == PARTS


def test_a_backup_is_ascii_so_that_no_tool_changes_its_texts() -> None:
    assert written().isascii()


def test_a_backup_that_was_cut_off_anywhere_is_refused() -> None:
    whole = written()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1):
        assert "night.jsonl was cut off or changed" in refusal(whole[:end])


def test_a_backup_in_which_any_byte_was_changed_is_refused() -> None:
    whole = written()
    for place in range(whole.index(b"\n") + 1, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        # The counts in the last line are not under its own digest.
        if place < whole.rindex(b'{"end"') or place > whole.rindex(b'"sha256"'):
            assert "night.jsonl was cut off or changed" in refusal(bytes(changed))


@pytest.mark.parametrize("lines", [slice(2, None), slice(None, 2)])
def test_a_backup_with_lost_or_doubled_lines_is_refused(lines: slice) -> None:
    first, *rest = written().splitlines(keepends=True)
    assert "cut off" in refusal(b"".join([first, *rest[lines]]))
    assert "cut off" in refusal(b"".join([first, *rest[lines], *rest]))


@pytest.mark.parametrize("content", [b"", b"\n", b"[1]\n", b'{"scope_judge_set": 2}\n', bytes(9)])
def test_another_file_is_not_a_backup(content: bytes) -> None:
    assert "night.jsonl is not a backup" in refusal(content)


def test_another_format_names_the_release_that_reads_it() -> None:
    line = {"scope_judge_backup": 2, "release": "9.0.0", "at": "later"}
    assert "use the release that wrote it (9.0.0)" in refusal(json.dumps(line).encode() + b"\n")


@pytest.mark.parametrize(
    "line",
    [
        {"part": "weather"},
        {"part": "change", "name": "mine"},
        {"part": "secret", "secret": "not hexadecimal"},
        {"no": "part"},
    ],
)
def test_an_unknown_part_is_named_by_its_line(line: dict[str, str]) -> None:
    head = written().splitlines()[0]
    with pytest.raises(InvalidRequestError, match="line 2 of the backup"):
        list(parts_in([head, json.dumps(line).encode()]))
