"""The release of scope-judge that runs, with the commit where it is known."""

import json
import subprocess
from pathlib import Path

from app import __version__

_DISTRIBUTION = "scope-judge"
_PACKAGE = Path(__file__).parent


def commit_of(package: Path = _PACKAGE) -> str | None:
    """The commit of an installed package; None if nothing tells it.

    It is read from the file COMMIT of the package, which a build may write, from the clone around
    the package, or from the note that pip makes of `pip install git+ADDRESS`.
    """
    if (package / "COMMIT").is_file():
        return (package / "COMMIT").read_text(encoding="utf-8").strip() or None
    if (package.parent / ".git").exists():
        return _commit_of_clone(package.parent)
    return _commit_of_installation()


def _commit_of_clone(folder: Path) -> str | None:
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _commit_of_installation() -> str | None:
    # Imported here: a clone and an image do not need it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        note = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return None
    commit = note.get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None


COMMIT = commit_of()
# As `scope-judge --version` prints it, and as a calibration set names the release that wrote it.
RELEASE = f"{__version__} (commit {COMMIT[:12]})" if COMMIT else __version__
