"""`python -m tests.unit.prose [PATH...]`: banned shapes of prose, counted by package and file.

With a path it prints every fault below it.
"""

import sys
from collections import Counter
from pathlib import Path

from tests.unit.docs.markdown import ROOT
from tests.unit.prose.checker import Fault, faults_of, files


def main(arguments: list[str]) -> None:
    """Prints counts, or the faults below the given paths."""
    below = [(Path.cwd() / each).resolve() for each in arguments]
    found: list[Fault] = []
    for file in files():
        if not below or any(each in (file, *file.parents) for each in below):
            found += faults_of(file)
    if below:
        print("\n".join(map(str, found)))
    else:
        print(report(found))
    print(f"{len(found)} faults")
    sys.exit(1 if found else 0)


def report(found: list[Fault]) -> str:
    """Counts by package with their shapes, then by file."""
    packages: dict[str, Counter[str]] = {}
    for fault in found:
        packages.setdefault(package_of(fault.path), Counter())[fault.shape] += 1
    lines = []
    for name, counts in sorted(packages.items(), key=lambda item: -item[1].total()):
        shapes = ", ".join(f"{count} {shape}" for shape, count in counts.most_common())
        lines.append(f"{counts.total():5}  {name}  ({shapes})")
    by_file = Counter(fault.path for fault in found)
    lines += ["", *(f"{count:5}  {path}" for path, count in by_file.most_common())]
    return "\n".join(lines)


def package_of(path: str) -> str:
    """`app/api/routes/x.py` -> `app/api`; a file of a top folder stays itself."""
    parts = Path(path).parent.parts[:2]
    return "/".join(parts) if parts and parts != ("app",) else path


if __name__ == "__main__":
    assert ROOT.is_dir()
    main(sys.argv[1:])
