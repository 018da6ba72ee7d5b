"""Fresh virtual environments, wheels of this repository, and commands in these environments."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from subprocess import CompletedProcess

from packaging.requirements import Requirement

from tests.patience import PATIENCE_S
from tests.unit.docs.markdown import ROOT

CLIENT = ROOT / "clients" / "python"


def build(project: Path, folder: Path) -> Path:
    """Builds the wheel of a project, and returns the file."""
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], project)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment that has nothing of this repository yet.

    Args:
        folder: Folder to make.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
        self._python = folder / "bin" / "python"

    def pip_install(self, *arguments: str) -> str:
        """Runs `pip install`, which resolves all requirements, and returns its output."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        command = [*pip, "--python", str(self._python), "install", "--no-compile", *arguments]
        return _run(command, self._folder).stdout

    def run(self, *command: str) -> str:
        """Runs a program of the environment and returns its output."""
        program, *arguments = command
        return _run([str(self._folder / "bin" / program), *arguments], self._folder).stdout

    def lend(self, requirements: Iterable[str]) -> None:
        """Lends the installed packages that these requirements lead to, and no others.

        pip takes them for installed, so that it can resolve without an index.
        """
        (target,) = self._folder.glob("lib/python*/site-packages")
        for lent in _closure(map(Requirement, requirements), {}):
            for name in {file.parts[0] for file in lent.files or () if file.parts[0] != ".."}:
                link = target / name
                if name != "__pycache__" and not link.exists():
                    link.symlink_to(Path(str(lent.locate_file(name))))


def _closure(
    requirements: Iterable[Requirement], seen: dict[str, set[str]]
) -> Iterator[Distribution]:
    """The installed distributions that requirements lead to; a missing one is an error."""
    for requirement in requirements:
        known = seen.setdefault(requirement.name, set())
        extras = {"", *requirement.extras} - known
        if not extras:
            continue
        known |= extras
        found = distribution(requirement.name)
        yield found
        wanted = map(Requirement, found.requires or ())
        yield from _closure(
            [
                each
                for each in wanted
                if each.marker is None
                or any(each.marker.evaluate({"extra": extra}) for extra in extras)
            ],
            seen,
        )


def _run(command: list[str], folder: Path) -> CompletedProcess[str]:
    # Neither the tests' path nor their settings reach the program.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("SCOPE_")
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return done
