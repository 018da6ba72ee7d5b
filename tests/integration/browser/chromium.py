"""A browser that reaches nothing but this machine."""

import os
import shutil
import subprocess
import tempfile
from subprocess import CompletedProcess

from tests.patience import PATIENCE_S

# Debian's name first, then that of Google's package.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
# Every other host's name cannot be resolved.
NO_OTHER_HOST = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    NO_OTHER_HOST,
    # In milliseconds of the page's own clock, which runs ahead while the page waits for nothing.
    "--virtual-time-budget=30000",
)


def shown(url: str, *flags: str) -> CompletedProcess[str]:
    """Loads a page; standard output has it as the browser has built it."""
    assert CHROMIUM is not None, "install chromium: `make setup-dev` does"
    # The browser makes a socket in its temporary folder, and a socket's path has 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        profile = f"--user-data-dir={folder}/profile"
        return subprocess.run(
            [CHROMIUM, *_FLAGS, *flags, profile, "--dump-dom", url],
            env=os.environ | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
