"""Runs `scope-judge serve` in a process group of its own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.forked import ForkedCommand
from tests.programs import HttpServer, free_port

SERVE = (str(Path(sys.executable).with_name("scope-judge")), "serve")


class Server(HttpServer):
    """A running service.

    Args:
        folder: Folder of the log.
        settings: Environment variables.
        command: Command that starts the service in a process of its own; without one, a service
            with the scripted judge forks from a process that has imported it.
        output: File descriptor for stdout and stderr; None for a log file in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        command: Sequence[str] | None = None,
        output: int | None = None,
        **options: Any,
    ) -> None:
        port = free_port()
        self._forks = command is None and settings.get("SCOPE_ENGINE") == "scripted"
        if output is not None:
            self._forks, options = False, {"stdout": output, "stderr": output, **options}
        command = [word.format(port=port) for word in command or SERVE]
        # No proxy is in front of the service, so it needs no drain lag.
        environment = {"SCOPE_DRAIN_LAG_S": "0", **settings, "SCOPE_PORT": str(port)}
        super().__init__(
            folder, "serve", command, environment, port=port, ready_path="/readyz", **options
        )

    def started(self) -> "subprocess.Popen[bytes] | ForkedCommand":
        """Starts the service."""
        if not self._forks:
            return super().started()
        self.log.touch()
        return ForkedCommand(["serve"], environment=self.environment, output=self.log)
