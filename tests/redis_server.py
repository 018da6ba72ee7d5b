"""A real Redis server for tests, which they may stop, kill and start again."""

import shutil
import subprocess
from pathlib import Path
from typing import Self

import redis

from tests.patience import wait_until
from tests.programs import Program, free_port


class RedisServer(Program):
    """A redis-server on a free port that logs every write to disk before it answers.

    The folder of its data and its log is kept when it ends.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        program = shutil.which("redis-server")
        assert program, "These tests need redis-server on PATH: install Redis (apt: redis-server)."
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *options]
        super().__init__(folder, "redis", command)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self, *words: str) -> object:
        """The server's answer to one command."""
        with redis.Redis.from_url(self.url, decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self.command("PING"))
        except redis.RedisError:
            return False


class RedisCluster:
    """A Redis Cluster of three nodes on this machine."""

    def __init__(self, folder: Path) -> None:
        self._nodes = []
        for number in range(3):
            own = folder / str(number)
            own.mkdir()
            # Without --cluster-port, the bus would need the port plus 10,000.
            options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            self._nodes.append(RedisServer(own, *options))

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis+cluster://127.0.0.1:{self._nodes[0].port}"

    def __enter__(self) -> Self:
        for node in self._nodes:
            node.start()
        program = shutil.which("redis-cli")
        assert program, "These tests need redis-cli on PATH: install Redis (apt: redis-tools)."
        places = [f"127.0.0.1:{node.port}" for node in self._nodes]
        subprocess.run(
            [program, "--cluster", "create", *places, "--cluster-yes"],
            check=True,
            capture_output=True,
        )
        agreed = "'cluster_state': 'ok'"
        wait_until(lambda: all(agreed in str(x.command("CLUSTER INFO")) for x in self._nodes))
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self._nodes:
            node.stop()

    def empty(self) -> None:
        """Removes all keys."""
        for node in self._nodes:
            node.command("FLUSHALL")
