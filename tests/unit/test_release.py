"""The commit is that of the clone, of the build or of pip's note, and its absence is no error."""

import subprocess
from pathlib import Path

import pytest

from app import __version__, release
from tests.unit.docs.markdown import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def package_in(clone: Path, files: dict[str, str]) -> Path:
    """The folder of a package in a clone that has these files."""
    for name, text in {"app/__init__.py": "", **files}.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    return clone / "app"


@pytest.mark.parametrize("commit", [COMMIT, ""])
def test_the_commit_of_a_build_counts_before_that_of_a_clone(commit: str, tmp_path: Path) -> None:
    package = package_in(tmp_path, {"app/COMMIT": f"{commit}\n", ".git/HEAD": f"{'f' * 40}\n"})
    assert release.commit_of(package) == (commit or None)


def test_a_clone_without_a_commit_has_none(tmp_path: Path) -> None:
    assert release.commit_of(package_in(tmp_path, {".git/HEAD": "ref: refs/heads/x\n"})) is None


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone")
def test_the_commit_is_the_one_that_git_names() -> None:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert head == release.COMMIT
    assert f"{__version__} (commit {head[:12]})" == release.RELEASE


@pytest.mark.parametrize(
    ("note", "commit"),
    [
        (None, None),
        ("not JSON", None),
        (f'{{"vcs_info": {{"vcs": "git", "commit_id": "{COMMIT}"}}}}', COMMIT),
    ],
)
def test_a_package_that_pip_got_from_git_has_its_commit(
    note: str | None, commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "scope_judge-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: scope-judge\nVersion: 9\n")
    if note is not None:
        (info / "direct_url.json").write_text(note)
    monkeypatch.syspath_prepend(tmp_path)
    assert release.commit_of(package_in(tmp_path, {})) == commit
