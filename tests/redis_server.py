"""A real Redis server for tests, which they may stop, kill and start again."""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import redis

from tests.patience import PATIENCE_S


class RedisServer:
    """A redis-server on a free port that logs every write to disk before it answers.

    Args:
        folder: Folder for its data and its log; kept after `stop` and `kill`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts the server on its data, and returns when it answers."""
        program = shutil.which("redis-server")
        assert program, "These tests need redis-server on PATH: install Redis (apt: redis-server)."
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._folder), "--logfile", "redis.log"]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self._process = subprocess.Popen(command)
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            log = self._folder / "redis.log"
            assert self._process.poll() is None, f"redis-server ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"redis-server does not answer; see {log}"
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends the server in order; does nothing if it does not run."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None

    def kill(self) -> None:
        """Kills the server, as in a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process = None

    def command(self, *words: str) -> object:
        """The server's answer to one command."""
        with redis.Redis.from_url(self.url, decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except redis.RedisError:
            return False
