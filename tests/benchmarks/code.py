"""The code that a figure measures, and its hash: the hash tells when a figure is out of date.

A figure counts as out of date when a file that it runs has changed. So the sets below leave out
what no figure executes: other commands, ratings, evaluation, files, Ray. A figure of the client
compares the client with httpx on the same service, so that the service is no part of it. Versions
of packages are beside the figures in docs/measured/bench.json.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BENCH = "tests/benchmarks/"
_RUNS_SERVICE = (f"{_BENCH}processes.py", f"{_BENCH}service.py")
_SERVICE = (
    "app/*.py",
    "app/api/**/*.py",
    "app/core/*.py",
    "app/judges/*.py",
    "app/judging/*.py",
    "app/service/**/*.py",
    "app/wire/*.py",
    "app/wiring/*.py",
    "app/stores/sqlite*.py",
)
_SCRIPTED = (*_SERVICE, "app/judges/engines/scripted.py", *_RUNS_SERVICE)
# A pattern after "!" leaves files out.
_VLLM = (
    "app/judges/engines/*.py",
    "!app/judges/engines/openai_*.py",
    "!app/judges/engines/scripted.py",
    "app/judges/prompts.py",
    f"{_BENCH}offline.py",
)
_ARENA = (
    *_SERVICE,
    *_VLLM,
    *_RUNS_SERVICE,
    "app/demo/model/config.json",
    *(f"{_BENCH}{name}.py" for name in ("engine_speed", "chat_client", "texts", "real_judge")),
)
_HTTP = (*_SCRIPTED, f"{_BENCH}http_speed.py", f"{_BENCH}load.py")
_CLIENT = ("clients/python/scope_judge/*.py", f"{_BENCH}client_speed.py", *_RUNS_SERVICE)
_START = (
    *_SERVICE,
    *_VLLM,
    "app/cli/__init__.py",
    "app/cli/commands/serve.py",
    "app/cli/service_*.py",
    "app/demo/model/config.json",
    f"{_BENCH}start_speed.py",
)
# Beginning of a figure's name -> patterns of the files that it measures.
FILES: dict[str, tuple[str, ...]] = {
    "engine-": _ARENA,
    "chat-client-": _ARENA,
    "transformers-loop-": _ARENA,
    "prefix-order": (*_VLLM, f"{_BENCH}prefix_order.py", f"{_BENCH}texts.py"),
    "http-scripted": _HTTP,
    "single-scripted": _HTTP,
    "draws-": _HTTP,
    "memory": _HTTP,
    "client-": _CLIENT,
    "start-": _START,
}


def files_of(figure: str) -> list[Path]:
    """The files that a figure measures, sorted."""
    (patterns,) = (own for prefix, own in FILES.items() if figure.startswith(prefix))
    found, left_out = set[Path](), set[Path]()
    for pattern in patterns:
        (left_out if pattern.startswith("!") else found).update(ROOT.glob(pattern.lstrip("!")))
    return sorted(found - left_out)


def code_hash(figure: str) -> str:
    """Sixteen hexadecimal digits, which change with each file that the figure measures."""
    whole = hashlib.sha256()
    for file in files_of(figure):
        whole.update(f"{file.relative_to(ROOT)} {_digest(file)}\n".encode())
    return whole.hexdigest()[:16]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
