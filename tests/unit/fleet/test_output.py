"""The output folder of a bulk run: one input, one judge, and parts that are whole or undone."""

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StartupError
from app.fleet.output import Output, Receipt

MANIFEST: dict[str, Any] = {"input": [{"shard": "a", "sha256": "1"}], "criterion": {"alpha": 0.1}}
JUDGED: dict[str, Any] = {"verdict": "A", "calibration": {"name": "default", "version": 3, "n": 9}}


def begun(folder: Path) -> Output:
    output = Output(folder / "out")
    output.begin(MANIFEST)
    return output


@pytest.mark.parametrize("name", ["input", "criterion"])
def test_a_folder_of_another_input_or_criterion_is_refused(tmp_path: Path, name: str) -> None:
    begun(tmp_path).begin(MANIFEST)
    with pytest.raises(StartupError, match=f"another {name}"):
        begun(tmp_path).begin({**MANIFEST, name: "another"})


def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    output = begun(tmp_path)
    (output.folder / "manifest.json").write_text("{")
    with pytest.raises(StartupError, match="belongs to a run with another"):
        output.begin(MANIFEST)


def test_a_folder_of_another_judge_is_refused(tmp_path: Path) -> None:
    output = begun(tmp_path)
    output.claim(judge="one", fingerprint="f1")
    output.claim(judge="one", fingerprint="f1")
    with pytest.raises(StartupError, match="another judge"):
        Output(output.folder).claim(judge="two", fingerprint="f2")


def test_a_part_is_done_when_its_results_are_whole(tmp_path: Path) -> None:
    output = begun(tmp_path)
    assert output.receipt(0) is None
    written = output.write_part(0, [JUDGED, {"error": {}}, {**JUDGED, "verdict": "abstain"}])
    assert output.receipt(0) == written
    assert written.outcomes == {"A": 1, "error": 1, "abstain": 1}
    assert written.calibrations == {"default, version 3": 2}
    results = output.results_of(0)
    results.write_bytes(results.read_bytes()[:-1])
    assert output.receipt(0) is None
    results.unlink()
    assert output.receipt(0) is None


def test_results_without_a_receipt_are_not_done(tmp_path: Path) -> None:
    output = begun(tmp_path)
    output.write_part(0, [JUDGED])
    output.results_of(0).with_suffix(".json").unlink()
    assert output.receipt(0) is None


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    output = begun(tmp_path)
    output.write_part(0, [JUDGED])
    left = output.folder / "parts" / ".000001.jsonl.1.new"
    left.write_text("half a li")
    output.begin(MANIFEST)
    assert not left.exists()
    assert output.receipt(0) is not None


def test_receipts_add_up() -> None:
    both = Receipt(results=2, outcomes={"A": 1, "B": 1}, calibrations={"d": 2}, size=5) + Receipt(
        results=1, outcomes={"A": 1}, calibrations={"e": 1}, size=4
    )
    assert both == Receipt(
        results=3, outcomes={"A": 2, "B": 1}, calibrations={"d": 2, "e": 1}, size=9
    )
