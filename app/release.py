"""The release of scope-judge that runs, with the commit where it is known."""

import json
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
        return _text(package / "COMMIT") or None
    git = package.parent / ".git"
    return _commit_of_clone(git) if git.exists() else _commit_of_installation()


def _commit_of_clone(git: Path) -> str | None:
    """The checked-out commit of a clone; `git` is a file in a second worktree of a clone."""
    if git.is_file():
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head or None
    ref = head.removeprefix("ref: ")
    shared = git / _text(git / "commondir")
    for folder in (git, shared):
        if commit := _text(folder / ref):
            return commit
    packed = (line.split(" ") for line in _text(shared / "packed-refs").splitlines())
    return next((words[0] for words in packed if words[1:] == [ref]), None)


def _commit_of_installation() -> str | None:
    # Imported here: a clone and an image do not need it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        note = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return None
    commit = note.get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None


def _text(file: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


COMMIT = commit_of()
# As `scope-judge --version` prints it, and as a calibration set names the release that wrote it.
RELEASE = f"{__version__} (commit {COMMIT[:12]})" if COMMIT else __version__
