"""Checks every file of app/ against the import table, which is the architecture."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "app").rglob("*.py"))
CLIENT = ROOT / "clients" / "python" / "scope_judge"

_ADAPTER = {"core", "ports", "numpy"}
_ENGINE = _ADAPTER | {"engines.rendering", "engines.model_files"}
_USE_CASE = {
    "core",
    "ports",
    "observability",
    "service.judged",
    "service.off_loop",
    "service.fair_queue",
}
_ENTRY = {
    "api",
    "wire",
    "wiring",
    "settings",
    "evaluation",
    "service",
    "core",
    "files",
    "observability",
    "release",
    "fastapi",
    "uvicorn",
    "typer",
    "rich",
    "httpx",
}

# Row -> modules that its files may import besides the standard library, `app` itself and the files
# of the row. A row is a module or package below app/; the longest matching row applies to a file.
ALLOWED: dict[str, set[str]] = {
    "": set(),
    "core": {"numpy", "scipy"},
    "ports": {"core"},
    # The version and the commit.
    "release": set(),
    # The view of the running service: metrics, gauges, logs.
    "observability": {"core", "ports", "prometheus_client"},
    "settings": {"core.groups", "pydantic", "pydantic_settings"},
    "service": {"core", "ports", "observability"},
    # scoring <- calibration <- auditing <- judging <- rewards; what they share is in no package.
    "service.scoring": _USE_CASE,
    "service.calibration": _USE_CASE | {"service.scoring", "release"},
    # An entry of the trail is JSON, which pydantic parses into the record.
    "service.calibration.trail": {"core", "service.calibration", "pydantic"},
    "service.auditing": _USE_CASE | {"service.calibration", "numpy"},
    # The log of audits is JSON, which pydantic parses into the records.
    "service.auditing.entries": {"core", "pydantic"},
    # So are the texts of drawn pairs.
    "service.auditing.texts": {"core", "service.auditing", "pydantic"},
    "service.judging": _USE_CASE
    | {"service.scoring", "service.calibration", "service.auditing", "numpy"},
    "service.rewards": _USE_CASE | {"service.judging", "service.admission"},
    # JSON in and out, shared by HTTP, files and Ray. The package does not know HTTP.
    "wire": {"scope_judge.records", "core", "service", "observability", "release", "pydantic"},
    "engines": set(),
    "engines.scripted": _ENGINE,
    "engines.vllm_local": _ENGINE
    | {"engines.vllm_build", "engines.vllm_process", "engines.vllm_start", "engines.vllm_worker"}
    | {"vllm", "torch"},
    "engines.vllm_reward": _ENGINE
    | {"engines.conversations", "engines.vllm_build", "engines.vllm_process"}
    | {"engines.vllm_start", "vllm", "torch"},
    "engines.vllm_process": _ENGINE | {"engines.turns", "engines.vllm_start", "vllm"},
    "engines.vllm_start": _ENGINE
    | {"engines.descendants", "engines.imports", "engines.vllm_build", "engines.vllm_worker"}
    | {"vllm", "torch", "transformers"},
    "engines.vllm_build": {"core", "engines.imports", "vllm", "torch"},
    "engines.vllm_worker": {"vllm"},
    "engines.openai_remote": _ENGINE
    | {"engines.openai_dialects", "engines.openai_servers", "engines.turns"},
    "engines.openai_reward": _ENGINE
    | {"engines.conversations", "engines.openai_servers", "engines.turns"},
    "engines.openai_dialects": _ENGINE,
    "engines.decisions_remote": _ENGINE
    | {"engines.decisions_dialects", "engines.openai_dialects", "engines.openai_servers"}
    | {"engines.turns"},
    "engines.decisions_dialects": _ENGINE,
    "engines.openai_servers": _ENGINE | {"engines.turns", "httpx"},
    "engines.turns": {"ports"},
    "engines.descendants": set(),
    "engines.imports": set(),
    "engines.markers": set(),
    "engines.chat_template": {"core", "engines.markers", "transformers"},
    "engines.conversations": {"core", "ports", "jinja2", "transformers"}
    | {"engines.chat_template", "engines.markers"},
    "engines.rendering": _ENGINE
    | {"engines.chat_template", "engines.imports", "engines.markers", "transformers", "jinja2"},
    "engines.model_files": _ENGINE | {"huggingface_hub", "transformers"},
    "stores": set(),
    "stores.redis": _ADAPTER | {"redis", "stores.redis_keys", "stores.redis_scripts"},
    "stores.redis_keys": set(),
    "stores.redis_scripts": set(),
    "stores.sqlite": _ADAPTER | {"stores.sqlite_file", "stores.sqlite_leases"},
    "stores.sqlite_file": {"core"},
    "stores.sqlite_leases": {"ports", "stores.sqlite_file"},
    "stores.memory": _ADAPTER,
    # Comparisons in files of any format, for the command line; labeled rows go through the check
    # that a page shares.
    "files": {"core", "pyarrow"},
    "evaluation": {
        "core",
        "ports",
        "service",
        "files",
        "numpy",
        "scipy",
        "sklearn",
        "matplotlib",
        "jinja2",
        # The data sets of the hub, and the pairs of the bundled judge.
        "datasets",
        "demo.pairs",
    },
    # Ratings of models from judged battles.
    "ratings": {
        "core",
        "files",
        "numpy",
        "scipy",
        "pyarrow",
        "jinja2",
        "markdown_it",
        "markupsafe",
        "pydantic",
    },
    "api": {
        # The only declaration of the answers.
        "scope_judge.records",
        "core",
        "service",
        "wire",
        "observability",
        "fastapi",
        "starlette",
        "pydantic",
    },
    # The HTTP server, with limits that uvicorn lacks; h11 is uvicorn's HTTP parser.
    "api.server": {"api", "core", "settings", "fastapi", "uvicorn", "h11"},
    "wiring": {
        "engines",
        "stores",
        "service",
        "release",
        "settings",
        "observability",
        "ports",
        "core",
    },
    "main": _ENTRY,
    # Both entry points serve the application that main builds; commands ask services as clients.
    "cli": _ENTRY | {"main", "fleet", "ratings", "scope_judge"},
    # The only importer of Ray.
    "fleet": {
        "wire",
        "wiring",
        "settings",
        "service",
        "core",
        "ports",
        "main",
        "files",
        "observability",
        "ray",
        "pyarrow",
        "pydantic",
    },
    # A replica on Ray Serve is the whole service, with HTTP.
    "fleet.replica": {
        "api",
        "fleet",
        "wiring",
        "settings",
        "service",
        "core",
        "main",
        "observability",
        "fastapi",
        "pydantic",
    },
    # The pairs and battles of the bundled judge; tests/demo_judge trains and measures it.
    "demo": set(),
}
# In these packages each module needs a row; the package's own row covers its __init__.py only.
ROWS_PER_MODULE = {"", "engines", "stores"}

# File of the client -> packages that it may import besides the standard library and the client
# itself, which is installed into the environments of trainers.
CLIENT_MAY_IMPORT: dict[str, set[str]] = {
    "exchange.py": {"httpx"},
    "transport.py": {"httpx"},
    "progress.py": {"tqdm"},
    # Only type checkers import it.
    "client.py": {"typing_extensions"},
    "async_client.py": {"typing_extensions"},
    # Each adapter imports its framework only.
    "trl.py": {"typing_extensions"},
    "processes.py": {"accelerate"},
    "verl.py": {"typing_extensions"},
    "verl_advantage.py": {"torch", "verl"},
    "verifiers.py": {"typing_extensions", "verifiers"},
    "inspect_ai.py": {"typing_extensions", "inspect_ai"},
}

VENDORS_THAT_START_LATE = (
    "torch",
    "vllm",
    "transformers",
    "redis",
    "matplotlib",
    "ray",
    "pyarrow",
)


class Fault(NamedTuple):
    """One broken rule; prints as `app/core/x.py:3: rule`."""

    path: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


def module_of(path: str) -> str:
    """`app/api/routes/x.py` -> `api.routes.x`; an __init__.py is its package."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_within(module: str, row: str) -> bool:
    return module == row or module.startswith(f"{row}.")


def row_of(module: str) -> str | None:
    """The longest row that covers a module; None if there is none."""
    fitting = [
        row
        for row in ALLOWED
        if module == row or (row not in ROWS_PER_MODULE and is_within(module, row))
    ]
    return max(fitting, key=len, default=None)


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import, at any place of the file.

    `from a import b` yields `a.b`: b may be a module. A literal import_module is an import too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join(parts[: len(parts) - node.level + 1] + ([base] if base else []))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else None
            called = function.id if isinstance(function, ast.Name) else called
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def import_faults(path: str, source: str) -> list[Fault]:
    """Every import of a file that its row does not allow."""
    module = module_of(path)
    row = row_of(module)
    if row is None:
        return [Fault(path, 1, f"no row of the import table covers {module}")]
    full = f"app.{module}".rstrip(".")
    package = full if path.endswith("__init__.py") else full.rpartition(".")[0]
    faults = []
    for line, name in imported_names(ast.parse(source), package):
        top, _, below = name.partition(".")
        if top == "app":
            own = row not in ROWS_PER_MODULE and is_within(below, row)
            fine = below in ("", "__version__") or own
            fine = fine or any(is_within(below, allowed) for allowed in ALLOWED[row])
        else:
            fine = top in sys.stdlib_module_names or top in ALLOWED[row]
            fine = fine or any(is_within(name, allowed) for allowed in ALLOWED[row])
        if not fine:
            faults.append(Fault(path, line, f"{row or 'app'} may not import {name}"))
    return faults


def client_import_faults(file: str, source: str) -> list[Fault]:
    """Every import of a file of the client that its row does not allow."""
    allowed = {"scope_judge", *sys.stdlib_module_names, *CLIENT_MAY_IMPORT.get(file, ())}
    return [
        Fault(file, line, f"{file} of the client may not import {name}")
        for line, name in imported_names(ast.parse(source), "scope_judge")
        if name.partition(".")[0] not in allowed
    ]


def report(faults: list[Fault]) -> str:
    return "\n" + "\n".join(map(str, faults))


def sources(files: Iterable[Path] = SOURCES) -> Iterator[tuple[str, str]]:
    for file in files:
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def test_there_are_files_to_check() -> None:
    assert len(SOURCES) > 10


def test_every_file_imports_only_what_its_row_allows() -> None:
    faults = [fault for path, source in sources() for fault in import_faults(path, source)]
    assert not faults, report(faults)


def test_the_client_imports_nothing_of_the_service() -> None:
    files = [(file.relative_to(CLIENT), file.read_text()) for file in CLIENT.rglob("*.py")]
    faults = [each for path, text in files for each in client_import_faults(path.as_posix(), text)]
    assert not faults, report(faults)


@pytest.mark.parametrize(
    ("file", "source", "faulty"),
    [
        ("service.py", "import app.core\nfrom app import wire", ["app.core", "app.wire"]),
        ("service.py", "import httpx", ["httpx"]),
        ("transport.py", "import httpx, json\nfrom scope_judge.exchange import Call", []),
    ],
)
def test_the_checker_knows_what_the_client_may_import(
    file: str, source: str, faulty: list[str]
) -> None:
    rules = [fault.rule for fault in client_import_faults(file, source)]
    assert rules == [f"{file} of the client may not import {name}" for name in faulty]


def test_the_package_itself_holds_only_its_version() -> None:
    tree = ast.parse((ROOT / "app" / "__init__.py").read_text(encoding="utf-8"))
    names = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert names == ["__version__"]
    assert all(isinstance(node, ast.Assign | ast.Expr) for node in tree.body)


@pytest.mark.parametrize("module", ["app.main", "app.cli"])
def test_importing_an_entry_point_loads_no_vendor(module: str) -> None:
    program = (
        f"import sys, {module}\n"
        f"loaded = [name for name in {VENDORS_THAT_START_LATE!r} if name in sys.modules]\n"
        f"sys.exit(f'{module} loads {{loaded}}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


BAD_CORE = """\
from typing import TYPE_CHECKING
import numpy.typing
import app.stores.redis
from . import errors
from .errors import InternalError
from ..stores import memory
from app import __version__, service
if TYPE_CHECKING:
    from vllm import LLM
def judge():
    import httpx
    async def inner():
        from app.wire.requests import JudgeRequest
    return __import__("redis")
"""


def test_the_checker_reports_file_line_and_rule_of_each_bad_import() -> None:
    faults = import_faults("app/core/bad.py", BAD_CORE)
    assert sorted(map(str, faults)) == sorted(
        [
            "app/core/bad.py:3: core may not import app.stores.redis",
            "app/core/bad.py:6: core may not import app.stores.memory",
            "app/core/bad.py:7: core may not import app.service",
            "app/core/bad.py:9: core may not import vllm.LLM",
            "app/core/bad.py:11: core may not import httpx",
            "app/core/bad.py:13: core may not import app.wire.requests.JudgeRequest",
            "app/core/bad.py:14: core may not import redis",
        ]
    )


@pytest.mark.parametrize(
    ("path", "source", "rules"),
    [
        ("app/engines/vllm_local.py", "import vllm, torch\nfrom . import rendering", []),
        (
            "app/engines/vllm_local.py",
            "from .openai_remote import x",
            ["engines.vllm_local may not import app.engines.openai_remote.x"],
        ),
        ("app/engines/scripted.py", "import torch", ["engines.scripted may not import torch"]),
        ("app/engines/__init__.py", "from . import x", ["engines may not import app.engines.x"]),
        ("app/engines/new.py", "", ["no row of the import table covers engines.new"]),
        ("app/stores/__init__.py", "import redis", ["stores may not import redis"]),
        ("app/stores/redis.py", "import redis.asyncio, sqlite3", []),
        ("app/stores/sqlite.py", "import redis", ["stores.sqlite may not import redis"]),
        ("app/service/rewards/x.py", "from app.service.judging import judge", []),
        *(
            (
                f"app/service/{package}/x.py",
                f"from app.service.{above} import x",
                [f"service.{package} may not import app.service.{above}.x"],
            )
            for package, above in pairwise(
                ("scoring", "calibration", "auditing", "judging", "rewards")
            )
        ),
        ("app/api/routes/judge.py", "from ..errors import x\nfrom app.core import errors", []),
        ("app/api/routes/judge.py", "import app.ports", ["api may not import app.ports"]),
        (
            "app/wiring/services.py",
            "from app.engines import vllm_local\nimport app.stores.redis",
            [],
        ),
        ("app/cli/commands/curve.py", "from app.evaluation import curve\nfrom rich import box", []),
        ("app/cli/commands/curve.py", "import matplotlib", ["cli may not import matplotlib"]),
        ("app/corelike.py", "", ["no row of the import table covers corelike"]),
        ("app/core/x.py", "import app.corelike", ["core may not import app.corelike"]),
        ("app/core/x.py", "from app import *", ["core may not import app.*"]),
        ("app/__init__.py", "import os", []),
        ("app/__init__.py", "from app.core import x", ["app may not import app.core.x"]),
    ],
)
def test_the_checker_knows_the_row_of_a_file(path: str, source: str, rules: list[str]) -> None:
    assert [fault.rule for fault in import_faults(path, source)] == rules
