"""Reads docker/ and docker-compose.yml."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CPU = ROOT / "docker" / "Dockerfile"
GPU = ROOT / "docker" / "Dockerfile.gpu"
COMPOSE = ROOT / "docker-compose.yml"


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its arguments."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    # A backslash at the end of a line joins it to the next; there are no here-documents.
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    split = [line.partition(" ") for line in whole if line.strip()]
    return [(kind.upper(), value.strip()) for kind, _, value in split]


def values(path: Path, instruction: str) -> list[str]:
    """The arguments of each instruction of one kind."""
    return [value for kind, value in instructions(path) if kind == instruction]


def copied(path: Path) -> list[str]:
    """The sources that a Dockerfile copies from the repository."""
    sources = []
    for value in [*values(path, "COPY"), *values(path, "ADD")]:
        words = value.split()
        if not any(word.startswith("--from=") for word in words):
            sources += [word for word in words if not word.startswith("--")][:-1]
    return sources


def exec_form(value: str) -> list[str]:
    """The words of an instruction in exec form; raises ValueError for shell form."""
    words = json.loads(value)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"not a list of words: {value}")
    return words


def health_check(path: Path) -> tuple[dict[str, str], list[str]]:
    """The options and the command of the health check."""
    (value,) = values(path, "HEALTHCHECK")
    options, _, command = value.partition("CMD ")
    return dict(re.findall(r"--([a-z-]+)=(\S+)", options)), exec_form(command)


def compose() -> dict[str, Any]:
    """docker-compose.yml, with its variables not substituted."""
    held: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return held


def bind_mounts() -> list[tuple[str, str, str]]:
    """Service, source in the repository and target of each bind mount."""
    return [
        (name, *volume.split(":")[:2])
        for name, service in compose()["services"].items()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
