"""Records the terminal sessions of docs/guides/sessions.md with tmux, on the bundled judge.

Usage: python docs/make_sessions.py     (needs tmux; starts a service of its own)
"""

import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
from pyarrow import parquet
from running_service import running_service

from app.demo.pairs import Pair, demo_sets

PAGE = Path(__file__).parent / "guides" / "sessions.md"
# Everything up to this line is written by hand.
RECORDED = "<!-- Recorded by docs/make_sessions.py. -->"
# Markdown of this project has at most 100 columns.
COLUMNS = 100
_LONGEST_COMMAND_S = 600


class Labelling(NamedTuple):
    """A command that shows pairs until they have labels.

    Args:
        command: The command.
        key: Screen with a pair -> the key that the person presses, in tmux's words.
    """

    command: str
    key: Callable[[str], str]


class Session(NamedTuple):
    """One person's way from a file to an answer.

    Args:
        title: Heading of the session.
        text: The person's aim.
        write: Writes the person's files into a folder.
        commands: Commands that the person types.
        lines: Lines of the terminal.
    """

    title: str
    text: str
    write: Callable[[Path], None]
    commands: Sequence[str | Labelling]
    lines: int = 60


def _battles(folder: Path) -> None:
    """Battles of four models; a stronger model is right more often."""
    strengths = {"ant": 0.5, "bee": 0.65, "cat": 0.8, "dog": 0.95}
    names = list(strengths)
    rows = []
    for i, pair in enumerate(_tasks(600)):
        right, wrong = _answers(pair)
        first, second = names[i % 4], names[(i + 1 + i // 4 % 3) % 4]
        talks = []
        for j, name in enumerate((first, second)):
            is_right = (i * 31 + j * 17) % 100 < 100 * strengths[name]
            answer = right if is_right else wrong
            talks.append([_message("user", pair.question), _message("assistant", answer)])
        if talks[0] != talks[1]:
            row = {"question_id": i, "model_a": first, "model_b": second}
            rows.append({**row, "conversation_a": talks[0], "conversation_b": talks[1]})
    with gzip.open(folder / "battles.jsonl.gz", "wt") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def _preferences(folder: Path) -> None:
    """Preference data as TRL takes it; every fifth pair is labelled the wrong way round."""
    rows = []
    for i, pair in enumerate(_tasks(500)):
        chosen, rejected = _answers(pair)
        if i % 5 == 0:
            chosen, rejected = rejected, chosen
        rows.append({"prompt": pair.question, "chosen": chosen, "rejected": rejected})
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "preferences.parquet")


def _notebook(folder: Path) -> None:
    """A table as a notebook writes it."""
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "response_a", "response_b"])
        for pair in _tasks(400):
            writer.writerow([pair.question, pair.response_a, pair.response_b])


def _traffic(folder: Path) -> None:
    """Pairs that nobody has labelled."""
    with (folder / "traffic.jsonl").open("w") as file:
        for pair in _tasks(400):
            row = {"question": pair.question}
            row |= {"response_a": pair.response_a, "response_b": pair.response_b}
            file.write(f"{json.dumps(row)}\n")


def _honest_key(screen: str) -> str:
    """The key of a person who knows the answers."""
    lines = screen.splitlines()
    row = next(i for i, line in enumerate(lines) if "--- LEFT" in line) + 1
    left, right = (part.strip() for part in lines[row].split(" | "))
    question = next(i for i, line in enumerate(lines) if "--- QUESTION" in line) + 1
    return "Left" if (lines[question], left, right) in _right_answers() else "Right"


@cache
def _right_answers() -> frozenset[tuple[str, str, str]]:
    """Question, right answer and wrong answer of the traffic."""
    return frozenset((pair.question, *_answers(pair)) for pair in _tasks(400))


def _tasks(count: int) -> Iterable[Pair]:
    """Pairs with which the bundled judge was neither trained nor calibrated."""
    return demo_sets().fresh[:count]


def _answers(pair: Pair) -> tuple[str, str]:
    """The right and the wrong answer."""
    both = pair.response_a, pair.response_b
    return both if pair.label == "A" else (both[1], both[0])


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


SESSIONS = (
    Session(
        "Battles of an arena",
        "Nadia has battles of four models, with whole conversations. She wants to know who wins.",
        _battles,
        (
            "scope-judge judge battles.jsonl.gz --alpha 0.1 --flat --no-keep-texts --out won.csv",
            "cut -d, -f1-6 won.csv | head -n 2",
            'awk -F, \'$4 == "A" {won[$2]++} $4 == "B" {won[$3]++} '
            "END {for (name in won) print won[name], name}' won.csv | sort -rn",
        ),
    ),
    Session(
        "Preference pairs for DPO",
        "Tomás has preference pairs, some of them the wrong way round. He wants to drop these.",
        _preferences,
        (
            "scope-judge filter preferences.parquet --alpha 0.05 --guarantee pac "
            "--out kept.parquet --review dropped.jsonl",
            "head -n 1 dropped.jsonl",
        ),
    ),
    Session(
        "Labels in a terminal",
        "Mei has 400 pairs of her traffic and no labels. She wants to label as few as possible.",
        _traffic,
        (Labelling("scope-judge label traffic.jsonl --name mei --alpha 0.05", _honest_key),),
        lines=16,
    ),
    Session(
        "A table from a notebook",
        "Kofi writes a table with pandas, and reads the results back with pandas.",
        _notebook,
        ("scope-judge judge pairs.csv --out results.parquet",),
    ),
)


class Terminal:
    """A terminal of tmux in a folder.

    Args:
        folder: Folder in which the commands run.
        environment: Variables of the commands.
        lines: Lines of the terminal.
    """

    def __init__(self, folder: Path, environment: dict[str, str], lines: int) -> None:
        self._name = f"sessions-{os.getpid()}-{folder.name}"
        self._file = folder.parent / f"{folder.name}.rc"
        # tmux gets a signal before each prompt, so that the end of a command is known.
        signal = f"tmux -L {self._name} wait-for -S prompt"
        self._file.write_text(f"PS1='$ '\nPROMPT_COMMAND='{signal}'\nunset HISTFILE\n")
        shell = f"bash --rcfile {self._file} -i"
        size = ["-x", str(COLUMNS), "-y", str(lines)]
        self._tmux("new-session", "-d", *size, "-c", str(folder), shell, env=environment)
        self._tmux("wait-for", "prompt")

    def screens_of(self, command: str | Labelling) -> list[str]:
        """Types a command, waits for its end and returns the screen.

        A command that shows pairs has three: the command, the first pair and the end.
        """
        typed = command if isinstance(command, str) else command.command
        self._tmux("send-keys", "clear", "Enter")
        self._wait_for_prompt()
        self._tmux("clear-history")
        self._tmux("send-keys", "-l", typed)
        self._tmux("send-keys", "Enter")
        before = [] if isinstance(command, str) else [f"$ {typed}", self._labelled(command)]
        self._wait_for_prompt()
        screen = self._screen("-S", "-").removesuffix("$").strip("\n")
        return [*before, screen.removeprefix(f"$ {typed}\n") if before else screen]

    def _wait_for_prompt(self) -> None:
        self._tmux("wait-for", "prompt")
        # The prompt appears after the signal.
        while self._screen().rpartition("\n")[2] != "$":
            time.sleep(0.02)

    def _labelled(self, command: Labelling) -> str:
        """Presses keys until the command ends, and returns the first screen with a pair."""
        first, answered = "", ""
        while not (screen := self._screen()).endswith("\n$"):
            if screen.endswith("scroll") and screen != answered:
                first, answered = first or screen, screen
                self._tmux("send-keys", command.key(screen))
            time.sleep(0.02)
        return first

    def _screen(self, *options: str) -> str:
        """The screen without blanks at its end."""
        screen = self._tmux("capture-pane", "-p", *options)
        return "\n".join(line.rstrip() for line in screen.splitlines()).rstrip()

    def close(self) -> None:
        """Ends the terminal."""
        self._tmux("kill-server")

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", *words],
            env={**os.environ, **(env or {})},
            check=True,
            capture_output=True,
            text=True,
            timeout=_LONGEST_COMMAND_S,
        )
        return done.stdout


def recorded(session: Session, folder: Path, url: str) -> str:
    """The commands and screens of a session as Markdown."""
    folder.mkdir()
    session.write(folder)
    bin_folder = str(Path(sys.executable).parent)
    terminal = Terminal(
        folder,
        {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "SCOPE_URL": url,
            "TERM": "screen",
            "NO_COLOR": "1",
        },
        session.lines,
    )
    try:
        screens = [
            screen for command in session.commands for screen in terminal.screens_of(command)
        ]
    finally:
        terminal.close()
    blocks = "\n\n".join(f"```text\n{screen}\n```" for screen in screens)
    return f"## {session.title}\n\n{session.text}\n\n{blocks}\n"


def main() -> None:
    """Records all sessions and writes the page."""
    if shutil.which("tmux") is None:
        raise SystemExit("tmux is missing: apt-get install tmux")
    with tempfile.TemporaryDirectory() as made, running_service(Path(made)) as url:
        parts = [recorded(each, Path(made) / str(i), url) for i, each in enumerate(SESSIONS)]
    by_hand, _, _ = PAGE.read_text().partition(RECORDED)
    PAGE.write_text(by_hand + "\n".join([f"{RECORDED}\n", *parts]))


if __name__ == "__main__":
    main()
