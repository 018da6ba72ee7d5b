"""Programs that answer questions, so that they work in a process of their own."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.programs import Program


class Worker(Program):
    """A module that answers JSON lines with JSON lines."""

    def __init__(
        self,
        folder: Path,
        name: str,
        module: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", module, json.dumps(options)]
        super().__init__(
            folder, name, command, environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def start(self) -> None:
        """Starts the module, and reads what it says of its start."""
        super().start()
        try:
            self.said = self._answer()
        except BaseException:
            self.kill()
            raise

    def ask(self, **question: Any) -> dict[str, Any]:
        """Sends a question and waits for its answer."""
        assert isinstance(self.process, subprocess.Popen)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert isinstance(self.process, subprocess.Popen)
        assert self.process.stdout is not None
        # Libraries also print to stdout; such lines are not answers.
        for line in self.process.stdout:
            if line.startswith(b'{"answer":'):
                answer: dict[str, Any] = json.loads(line)["answer"]
                return answer
        raise RuntimeError(f"{self.arguments} ended:\n{self.log.read_text()[-4000:]}")


def answer_questions(
    answer: Callable[[dict[str, Any]], dict[str, Any]], *, started: dict[str, Any]
) -> None:
    """A worker's own side: reports its start, then answers questions until stdin ends."""
    _say(started)
    for line in sys.stdin:
        _say(answer(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps({"answer": answer}), flush=True)
