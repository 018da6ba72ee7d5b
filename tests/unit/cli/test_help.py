"""Tests of -h and of shell completion: both must be fast, and know every command and option."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from app.cli import COMMANDS, command
from tests.patience import PATIENCE_S

SCOPE_JUDGE = str(Path(sys.executable).with_name("scope-judge"))
# Each takes a tenth of a second to import, or more. Typer itself imports rich and pydantic.
HEAVY = frozenset(
    (
        "numpy",
        "scipy",
        "sklearn",
        "matplotlib",
        "jinja2",
        "datasets",
        "pyarrow",
        "fastapi",
        "starlette",
        "uvicorn",
        "httpx",
        "pydantic_settings",
        "prometheus_client",
        "vllm",
        "torch",
        "transformers",
        "huggingface_hub",
        "redis",
        "ray",
        "asyncio",
    )
)
CALLS = [
    [],
    *([name] for name in COMMANDS),
    # Only a group has commands.
    *([name, sub] for name in COMMANDS for sub in getattr(command(name), "commands", ())),
]
# Each help is printed by a fork of a process that has imported no command yet.
PROGRAM = """
import json, os, sys
from app.cli import app
for names in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if not os.fork():
        try:
            app([*names, "-h"])
        except SystemExit as exc:
            print("loaded:", *{name.partition(".")[0] for name in sys.modules})
            print(*(name for name in sys.modules if name.startswith("app.cli.commands.")))
            sys.stdout.flush()
            os._exit(exc.code or 0)
    assert os.wait()[1] == 0, names
    print("=====")
"""


def output_of(command: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_loads_no_heavy_module_and_no_other_command() -> None:
    program = [sys.executable, "-c", PROGRAM, json.dumps(CALLS)]
    wrong = []
    for names, page in zip(CALLS, output_of(program).split("=====\n")[:-1], strict=True):
        text, _, loaded = page.partition("loaded: ")
        packages, commands = (line.split() for line in loaded.splitlines())
        usage = f"Usage: -c {' '.join(names)}".rstrip() in text and "--help" in text
        heavy = set(packages) & HEAVY
        own = {f"app.cli.commands.{name.replace('-', '_')}" for name in names}
        if not usage or heavy or set(commands) - own:
            wrong.append((names, heavy, commands))
    assert wrong == []


@cache
def completion_script(shell: str) -> str:
    return output_of([SCOPE_JUDGE, "--show-completion", shell], **NO_DETECTION)


def completed_by_bash(words: str) -> list[str]:
    """The words that bash offers for the last of these words, with our completion script."""
    script = completion_script("bash")
    call = (
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        f"_scope_judge_completion {SCOPE_JUDGE}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return output_of(["bash", "-c", f"{script}\n{call}"]).split()


# Otherwise the option takes no value, but looks for the shell that has started it.
NO_DETECTION = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
COMPLETIONS = {
    "scope-judge ''": list(COMMANDS),
    "scope-judge ev": ["evaluate"],
    "scope-judge serve --p": ["--port"],
    "scope-judge judge --al": ["--alpha"],
    "scope-judge evaluate demo --ju": ["--judge"],
    "scope-judge keys ''": ["add", "list", "revoke"],
    "scope-judge keys add --r": ["--role"],
}


@pytest.mark.parametrize("words", COMPLETIONS)
def test_a_shell_completes_commands_and_their_options(words: str) -> None:
    assert completed_by_bash(words) == COMPLETIONS[words]
