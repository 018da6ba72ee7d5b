"""The folder that a bulk run writes: begun with one input and one judge, and finished by parts.

manifest.json         the input's digests, how it is cut, what verdicts must meet
judge.json            the judge, of whoever judged first
parts/000000.jsonl    a part's results, in the order of its rows
parts/000000.json     its receipt: written last, so that a part without one is not done
summary.json          all receipts added up, once every part is done
"""

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.core.errors import StartupError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a part.

    Args:
        results: Rows judged or failed.
        outcomes: How many "A", "B", "abstain" and "error".
        calibrations: How many judgments rest on which "name, version N".
        size: Bytes of the file of results.
    """

    results: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    calibrations: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def __add__(self, other: "Receipt") -> "Receipt":
        """Both together."""
        return Receipt(
            self.results + other.results,
            dict(Counter(self.outcomes) + Counter(other.outcomes)),
            dict(Counter(self.calibrations) + Counter(other.calibrations)),
            self.size + other.size,
        )


class Output:
    """A bulk run's folder, which all machines see; several may write to it at once.

    Every file appears whole or not at all, and a part that is judged twice is the same file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"

    def begin(self, manifest: dict[str, Any]) -> None:
        """Makes the folder, or goes on with one that was begun alike.

        Raises:
            StartupError: It was begun with something else, or cannot be written.
        """
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            # Of runs that were killed.
            for left in (*self.folder.glob(".*.new"), *self._parts.glob(".*.new")):
                left.unlink(missing_ok=True)
            begun = self._claimed("manifest.json", {"format": _FORMAT, **manifest})
        except OSError as exc:
            raise StartupError(f"{self.folder} cannot be written: {exc.strerror}") from exc
        other = sorted(k for k in manifest if begun.get(k) != manifest[k])
        if begun.get("format") != _FORMAT or other:
            raise StartupError(
                f"{self.folder} was begun with another {' and '.join(other) or 'format'} (see its "
                "manifest.json): give another --out, or what it was begun with"
            )

    def claim(self, *, judge: str, fingerprint: str) -> None:
        """Notes who judges.

        Raises:
            StartupError: Another judge has begun.
        """
        begun = self._claimed("judge.json", {"judge": judge, "fingerprint": fingerprint})
        if begun.get("fingerprint") != fingerprint:
            raise StartupError(
                f"{self.folder} was begun with another judge ({begun.get('judge')}, "
                f"{str(begun.get('fingerprint'))[:12]}), this one is {judge}, {fingerprint[:12]}: "
                "model, prompt, prefill or label tokens differ. Give another --out"
            )

    def _claimed(self, name: str, content: dict[str, Any]) -> dict[str, Any]:
        """What the file says; of several who write it at once, the first has written it."""
        path = self.folder / name
        if not path.exists():
            new = _written(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
            try:
                os.link(new, path)
            except FileExistsError:
                pass
            finally:
                new.unlink()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}

    def results_of(self, part: int) -> Path:
        """Where a part's results are."""
        return self._parts / f"{part:06d}.jsonl"

    def receipt(self, part: int) -> Receipt | None:
        """A part's receipt; None if it is not done."""
        try:
            text = self.results_of(part).with_suffix(".json").read_text(encoding="utf-8")
            receipt = Receipt(**json.loads(text))
            whole = self.results_of(part).stat().st_size == receipt.size
        except (OSError, ValueError, TypeError):
            return None
        return receipt if whole else None

    def write_part(self, part: int, results: Iterable[dict[str, Any]]) -> Receipt:
        """Writes a part's results, then its receipt."""
        outcomes, calibrations = Counter[str](), Counter[str]()
        lines = []
        for result in results:
            outcomes["error" if "error" in result else result["verdict"]] += 1
            if result.get("calibration"):
                reference = result["calibration"]
                calibrations[f"{reference['name']}, version {reference['version']}"] += 1
            lines.append(json.dumps(result, ensure_ascii=False) + "\n")
        text = "".join(lines)
        receipt = Receipt(len(lines), dict(outcomes), dict(calibrations), len(text.encode()))
        path = self.results_of(part)
        _written(path, text).rename(path)
        path = path.with_suffix(".json")
        _written(path, json.dumps(asdict(receipt), sort_keys=True) + "\n").rename(path)
        return receipt

    def write_summary(self, total: Receipt) -> None:
        """Writes what all parts come to."""
        path = self.folder / "summary.json"
        _written(path, json.dumps(asdict(total), indent=1, sort_keys=True) + "\n").rename(path)


def _written(path: Path, text: str) -> Path:
    """A file beside the path, on disk, that is to take its name."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        # Of a full disk it would take what is left.
        new.unlink(missing_ok=True)
        raise
    return new
