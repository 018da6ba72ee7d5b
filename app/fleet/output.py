"""The output folder of a bulk run, for one input and one judge; it is written part by part.

manifest.json         digests of the input, size of the parts, criterion
judge.json            the judge, written by the first machine that judges
parts/000000.jsonl    results of a part, in the order of its rows
parts/000000.json     receipt of the part: written last, so that a part without a receipt is undone
summary.json          sum of all receipts, once every part is done
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.core.errors import StartupError
from app.core.fingerprint import INPUTS_DIFFER
from app.files.replacing import UNFINISHED, replace_text, replacing

_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """Counts of the results of a part, or of several.

    Args:
        results: Number of rows, judged or failed.
        outcomes: "A", "B", "abstain" or "error" -> number of rows.
        calibrations: "name, version N" of a calibration -> number of judgments that use it.
        size: Size of the file of results, in bytes.
    """

    results: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    calibrations: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def __add__(self, other: "Receipt") -> "Receipt":
        """The sum of two receipts."""
        return Receipt(
            results=self.results + other.results,
            outcomes=dict(Counter(self.outcomes) + Counter(other.outcomes)),
            calibrations=dict(Counter(self.calibrations) + Counter(other.calibrations)),
            size=self.size + other.size,
        )


class Output:
    """The folder of a bulk run, on a file system that all machines share; safe for concurrent use.

    Every file is written atomically. Judging a part twice writes the same file twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"

    def begin(self, manifest: dict[str, Any]) -> None:
        """Makes the folder, or continues in one with the same manifest.

        Raises:
            StartupError: The folder has another manifest, or it cannot be written.
        """
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            # Temporary files of killed runs.
            for left in (
                *self.folder.glob(f".*{UNFINISHED}"),
                *self._parts.glob(f".*{UNFINISHED}"),
            ):
                left.unlink(missing_ok=True)
            begun = self._claimed("manifest.json", {"format": _FORMAT, **manifest})
        except OSError as exc:
            raise StartupError(f"{self.folder} cannot be written: {exc.strerror}") from exc
        other = sorted(k for k in manifest if begun.get(k) != manifest[k])
        if begun.get("format") != _FORMAT or other:
            raise StartupError(
                f"{self.folder} belongs to a run with another {' and '.join(other) or 'format'}: "
                "give another --out, or the same input and options as in its manifest.json"
            )

    def claim(self, *, judge: str, fingerprint: str) -> None:
        """Records the judge of the run, unless one is recorded.

        Raises:
            StartupError: Another judge is recorded.
        """
        begun = self._claimed("judge.json", {"judge": judge, "fingerprint": fingerprint})
        if begun.get("fingerprint") != fingerprint:
            raise StartupError(
                f"{self.folder} has results of another judge ({begun.get('judge')}, "
                f"{str(begun.get('fingerprint'))[:12]}) than this one ({judge}, "
                f"{fingerprint[:12]}): {INPUTS_DIFFER}. Give another --out"
            )

    def _claimed(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        """Writes a JSON file unless it exists, and returns its content; the first writer wins."""
        path = self.folder / name
        if not path.exists():
            with replacing(path, only_new=True) as file:
                file.write(f"{json.dumps(content, indent=1, sort_keys=True)}\n".encode())
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            record = None
        return record if isinstance(record, dict) else {}

    def results_of(self, part: int) -> Path:
        """Path of the results of a part."""
        return self._parts / f"{part:06d}.jsonl"

    def receipt(self, part: int) -> Receipt | None:
        """The receipt of a part; None if the part is not done."""
        try:
            text = self.results_of(part).with_suffix(".json").read_text(encoding="utf-8")
            receipt = Receipt(**json.loads(text))
            whole = self.results_of(part).stat().st_size == receipt.size
        except (OSError, ValueError, TypeError):
            return None
        return receipt if whole else None

    def write_part(self, part: int, results: Iterable[dict[str, Any]]) -> Receipt:
        """Writes the results of a part, then its receipt.

        Raises:
            OSError: A file cannot be written.
        """
        outcomes, calibrations = Counter[str](), Counter[str]()
        lines = []
        for result in results:
            outcomes["error" if "error" in result else result["verdict"]] += 1
            if result.get("calibration"):
                reference = result["calibration"]
                calibrations[f"{reference['name']}, version {reference['version']}"] += 1
            lines.append(json.dumps(result, ensure_ascii=False) + "\n")
        text = "".join(lines)
        receipt = Receipt(
            results=len(lines),
            outcomes=dict(outcomes),
            calibrations=dict(calibrations),
            size=len(text.encode()),
        )
        path = self.results_of(part)
        replace_text(path, text)
        replace_text(path.with_suffix(".json"), json.dumps(asdict(receipt), sort_keys=True) + "\n")
        return receipt

    def write_summary(self, total: Receipt) -> None:
        """Writes the sum of all receipts."""
        text = json.dumps(asdict(total), indent=1, sort_keys=True) + "\n"
        replace_text(self.folder / "summary.json", text)
