"""`make architecture` prints the longest files and functions: places to look at, not faults."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.architecture.test_architecture import CLIENT, SOURCES, sources

LONG_FILE = 400
LONG_BODY = 40


def long_places(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Lines and place of the file, if it is long, and of each of its long functions."""
    lines = len(source.splitlines())
    if lines > LONG_FILE:
        yield lines, path
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
            lines = (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0
            if lines > LONG_BODY:
                yield lines, f"{path}:{node.lineno} {node.name}"


def main() -> None:
    """Prints every long place of the service and the client, the longest first."""
    files: list[Path] = [*SOURCES, *CLIENT.rglob("*.py")]
    places = [place for path, source in sources(files) for place in long_places(path, source)]
    print(f"Files over {LONG_FILE} lines and function bodies over {LONG_BODY}: {len(places)}")
    for lines, place in sorted(places, reverse=True):
        print(f"{lines:6}  {place}")


if __name__ == "__main__":
    main()
