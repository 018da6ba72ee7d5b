"""Makes an environment for each framework, because their pins disagree with those of vLLM."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_TORCH = "torch==2.13.0+cpu"
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# The client's only dependency.
_HTTPX = "httpx>=0.27"


class Environment(NamedTuple):
    """The packages of one framework.

    Args:
        packages: Its packages, with their dependencies.
        bare: Packages without their dependencies.
        needs_torch: Whether PyTorch for the CPU is installed first.
    """

    packages: Sequence[str]
    bare: Sequence[str] = ()
    needs_torch: bool = False


ENVIRONMENTS = {
    "trl": Environment(["trl==1.16.0", "accelerate==1.15.0"], needs_torch=True),
    "verifiers": Environment(["verifiers==0.4.0"]),
    "inspect": Environment(["inspect-ai==0.3.285"]),
    # orjson is missing among its dependencies.
    "verl": Environment(["verl==0.9.1", "orjson"], needs_torch=True),
    # Its dependencies need CUDA; the file that asks for rewards needs aiohttp only.
    "openrlhf": Environment(["aiohttp"], bare=["openrlhf==0.11.2"]),
}


def python_of(name: str, folder: Path) -> str:
    """The Python of an environment, which is made if there is none."""
    python = folder / name / "bin" / "python"
    done = folder / name / ".installed"
    wanted = repr(ENVIRONMENTS[name])
    if done.exists() and done.read_text() == wanted:
        return str(python)
    environment = ENVIRONMENTS[name]
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / name)], check=True)
    if environment.needs_torch and not _installs(python, _TORCH):
        # Where no local folder of wheels has it, PyTorch's index does.
        _install(python, _TORCH, "--index-url", _TORCH_INDEX)
    _install(python, *environment.packages, _HTTPX)
    if environment.bare:
        _install(python, "--no-deps", *environment.bare)
    done.write_text(wanted)
    return str(python)


def _install(python: Path, *arguments: str) -> None:
    subprocess.run(_command(python, arguments), check=True)


def _installs(python: Path, *arguments: str) -> bool:
    return subprocess.run(_command(python, arguments), capture_output=True).returncode == 0


def _command(python: Path, arguments: Sequence[str]) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", *arguments]
