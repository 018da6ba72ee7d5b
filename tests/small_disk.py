"""A small file system that a test can fill; mounting one needs root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Twice the size of Redis's first files.
_DISK_BYTES = 4 * 2**20


def no_small_disk() -> str | None:
    """Why no file system can be mounted here; None if one can."""
    if os.geteuid() != 0:
        return "mounting a small disk needs root"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    )
    return None if tried.returncode == 0 else "a small disk cannot be mounted here"


@contextmanager
def small_disk(folder: Path, size: int = _DISK_BYTES) -> Iterator[None]:
    """Mounts a file system of `size` bytes at `folder` while the block runs."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        # -l: a process that is being killed may still have a file open.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Fills the rest of the disk with a file."""
    with (folder / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass


def unfill(folder: Path) -> None:
    """Deletes the file that fills the disk."""
    (folder / "filling").unlink(missing_ok=True)
