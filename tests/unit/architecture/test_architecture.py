"""Checks every file of app/ against the import table, which is the architecture."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "app").rglob("*.py"))
CLIENT = ROOT / "clients" / "python" / "scope_judge"

# Use cases of every layer share these: running work in threads, fair shares of it, and short waits
# for the store.
_SHARED = {"core", "ports", "observability", "flow", "circuit_breaker"}
_ANSWERS = {"scope_judge.records", "pydantic"}

# Row -> modules that its files may import besides the standard library and the files of the row. A
# row is a module or package below app/. Each row may import only rows above it, so the table is the
# direction of imports:
#   core <- ports <- judges, stores <- sets <- audits <- judging <- api <- main <- cli, fleet
ALLOWED: dict[str, set[str]] = {
    # The paper and its statistics.
    "core": {"numpy", "scipy", "scope_judge.records"},
    "ports": {"core"},
    "observability": {"core", "ports", "flow", "prometheus_client"},
    # Kinds of judges, and the engines that they use.
    "judges": _SHARED | {"settings", "numpy", "httpx", "jinja2", "huggingface_hub"},
    "stores": {"core", "ports"},
    # A version of a set, and an audit, are JSON in the store, which pydantic parses.
    "sets": _SHARED | {"judges", "release"} | _ANSWERS,
    "audits": _SHARED | {"judges", "sets", "numpy"} | _ANSWERS,
    "judging": _SHARED | {"judges", "sets", "audits", "numpy", "scope_judge.records"},
    # The only package that knows HTTP; h11 is uvicorn's parser. Ray and the commands share its
    # requests and answers.
    "api": {"core", "observability", "sets", "audits", "judging", "flow"}
    | {"settings", "release", "fastapi", "starlette", "uvicorn", "h11"}
    | _ANSWERS,
    "files": {"core", "openpyxl", "pyarrow", "scope_judge.records"},
    "ratings": {"core", "files", "numpy", "scipy", "pyarrow", "pydantic"}
    | {"jinja2", "markupsafe"},
    "evaluation": _SHARED
    | {"judges", "files", "demo", "numpy", "scipy", "matplotlib", "datasets", "pydantic"}
    | {"scope_judge.records"},
    # Composition, and the two programs that start what it composes.
    "wiring": _SHARED
    | {"judges", "stores", "sets", "audits", "judging", "settings", "release"}
    | {"scope_judge.records"},
    "fleet": _SHARED | {"wiring", "api", "judging", "settings", "ray", "fastapi", "pydantic"},
    "cli": _SHARED
    | {"main", "api", "wiring", "judges", "judging", "sets", "audits", "files", "ratings"}
    | {"evaluation", "fleet", "settings", "release", "scope_judge", "typer", "rich"},
}
# Single files at the top, by what they may import. `main` composes the application.
TOP: dict[str, set[str]] = {
    "": set(),
    "release": set(),
    "demo": set(),
    "settings": {"core", "pydantic", "pydantic_settings"},
    "flow": set(),
    "circuit_breaker": {"core", "observability"},
    "main": {"api", "judging", "wiring", "settings", "observability", "core", "fastapi"},
}
# A vendor's package -> beginning of the names of the only files that import it.
VENDORS = {
    "vllm": "judges.engines.vllm_",
    "torch": "judges.engines.vllm_",
    "transformers": "judges.engines.",
    "redis": "stores.redis",
}

# File of the client -> packages that it may import besides the standard library and the client
# itself, which is installed into the environments of trainers.
CLIENT_MAY_IMPORT: dict[str, set[str]] = {
    "exchange.py": {"httpx"},
    "client.py": {"httpx"},
    "async_client.py": {"httpx"},
    # Only type checkers import it.
    "calls.py": {"typing_extensions"},
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
    "openpyxl",
    "pyarrow",
)


def module_of(path: str) -> str:
    """`app/api/routes/x.py` -> `api.routes.x`; an __init__.py is its package."""
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_within(module: str, row: str) -> bool:
    return module == row or module.startswith(f"{row}.")


def row_of(module: str) -> str | None:
    """The longest row that covers a module; None if there is none."""
    rows = [row for row in [*ALLOWED, *TOP] if module == row or (row and is_within(module, row))]
    return max(rows, key=len, default=None)


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, at any place of the file.

    `from a import b` yields `a.b`: b may be a module. A literal import_module is an import too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def import_faults(path: str, source: str) -> list[str]:
    """Every import of a file that its row does not allow."""
    module = module_of(path)
    row = row_of(module)
    if row is None:
        return [f"{path}: no row of the import table covers {module}"]
    allowed = ALLOWED[row] if row in ALLOWED else TOP[row]
    faults = []
    for line, name in imported_names(ast.parse(source)):
        top, _, below = name.partition(".")
        if top == "app":
            own = bool(row) and is_within(below, row)
            fine = below in ("", "__version__") or own
            fine = fine or any(is_within(below, other) for other in allowed)
        elif top in VENDORS:
            fine = module.startswith(VENDORS[top])
        else:
            fine = top in sys.stdlib_module_names
            fine = fine or any(is_within(name, other) for other in allowed)
        if not fine:
            faults.append(f"{path}:{line}: {row or 'app'} may not import {name}")
    return faults


def client_import_faults(file: str, source: str) -> list[str]:
    """Every import of a file of the client that its row does not allow."""
    allowed = {"scope_judge", *sys.stdlib_module_names, *CLIENT_MAY_IMPORT.get(file, ())}
    return [
        f"{file}:{line}: {file} of the client may not import {name}"
        for line, name in imported_names(ast.parse(source))
        if name.partition(".")[0] not in allowed
    ]


def test_there_are_files_to_check_and_the_table_fits_on_a_screen() -> None:
    assert len(SOURCES) > 10
    assert len(ALLOWED) <= 16


def test_every_file_imports_only_what_its_row_allows() -> None:
    files = [(file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in SOURCES]
    assert [each for path, text in files for each in import_faults(path, text)] == []


def test_the_client_imports_nothing_of_the_service() -> None:
    files = [(file.relative_to(CLIENT), file.read_text()) for file in CLIENT.rglob("*.py")]
    faults = [each for path, text in files for each in client_import_faults(path.as_posix(), text)]
    assert faults == []


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
