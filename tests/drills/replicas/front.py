"""haproxy in front of the replicas: deploy/haproxy/haproxy.cfg with only addresses replaced."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.processes import HttpServer

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "haproxy" / "haproxy.cfg"
_BIND = re.compile(r"^  bind (\S+)$", re.MULTILINE)
_SERVER = re.compile(r"^  server (\S+) \S+$", re.MULTILINE)


def configuration(port: int, replicas: Sequence[int]) -> str:
    """The shipped file, for these ports on this machine."""
    text, found = _BIND.subn(f"  bind 127.0.0.1:{port}", CONFIGURATION.read_text())
    assert found == 1, "haproxy.cfg must have exactly one `bind` line"
    lines = "\n".join(f"  server judge{i} 127.0.0.1:{at}" for i, at in enumerate(replicas, 1))
    first, *others = _SERVER.finditer(text)
    for other in reversed(others):
        text = text[: other.start()].rstrip(" ") + text[other.end() :].lstrip("\n")
    return text[: first.start()] + lines + text[first.end() :]


def haproxy(folder: Path, port: int, replicas: Sequence[int]) -> HttpServer:
    """A running haproxy in front of ready replicas."""
    file = folder / f"haproxy-{port}.cfg"
    file.write_text(configuration(port, replicas))
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert program, "This drill needs haproxy on PATH (apt: haproxy)."
    command = [program, "-f", str(file)]
    return HttpServer(folder, f"haproxy-{port}", command, {}, port=port, ready_path="/readyz")
