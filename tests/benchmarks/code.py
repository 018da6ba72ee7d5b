"""The code that a figure measures, and its hash: the hash tells when a figure is out of date.

A figure of the client compares the client with httpx on the same service, so that the service is no
part of it. Versions of packages are beside the figures in docs/measured/bench.json.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BENCH = "tests/benchmarks/"
_SERVICE = (
    "app/*.py",
    *(f"app/{package}/**/*.py" for package in ("api", "core", "judges", "judging")),
    *(f"app/{package}/*.py" for package in ("audits", "sets", "stores", "wiring")),
    f"{_BENCH}processes.py",
    f"{_BENCH}service.py",
)
_ENGINE = (*_SERVICE, *(f"{_BENCH}{name}.py" for name in ("engine_speed", "chat_client", "texts")))
_HTTP = (*_SERVICE, f"{_BENCH}http_speed.py", f"{_BENCH}load.py")
# Beginning of a figure's name -> patterns of the files that it measures.
FILES: dict[str, tuple[str, ...]] = {
    "engine-": (*_ENGINE, f"{_BENCH}offline.py"),
    "chat-client-": _ENGINE,
    "transformers-loop-": (*_ENGINE, f"{_BENCH}offline.py"),
    "prefix-order": ("app/judges/**/*.py", f"{_BENCH}prefix_order.py", f"{_BENCH}offline.py"),
    "http-scripted": _HTTP,
    "single-scripted": _HTTP,
    "memory": _HTTP,
    "client-": ("clients/python/scope_judge/*.py", f"{_BENCH}client_speed.py"),
    "start-": (*_SERVICE, "app/cli/commands/serve.py", f"{_BENCH}start_speed.py"),
}


def code_hash(figure: str) -> str:
    """Sixteen hexadecimal digits, which change with each file that the figure measures."""
    (patterns,) = (own for prefix, own in FILES.items() if figure.startswith(prefix))
    files = sorted({file for pattern in patterns for file in ROOT.glob(pattern)})
    whole = hashlib.sha256()
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(ROOT)} {digest}\n".encode())
    return whole.hexdigest()[:16]
