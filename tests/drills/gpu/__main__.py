"""`make gpu`: twelve steps that prove the GPU path, into docs/measured/gpu.json and its page.

On vLLM's CPU build it is a rehearsal: tiny judges, few pairs, and nothing is written without
--write. SCOPE_MODEL names the judge whose scores and start are measured; the default is a judge
with random weights. Every step runs, also after a failure.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from tests.drills.gpu.record import FILE, PAGE, Record
from tests.drills.gpu.scene import Scene, user_model
from tests.drills.gpu.steps import STEPS, Outcome, outcome_of
from tests.drills.running import Bar, add_only, print_table
from tests.markdown import between_markers

_COLORS = {"passed": "green", "failed": "red", "not run": "yellow"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the steps; the status is 1 if one failed."""
    given = _arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="scope-judge-gpu-"))
    outcomes: list[Outcome] = []
    with Bar(len(given.only)) as bar:
        scene = Scene(folder=folder, small=False, on_stage=bar.stage)
        scene.small = scene.device == "cpu"
        scene.model = None if scene.small else user_model()
        writes = given.write or scene.device == "gpu"
        record = Record(given.json)
        record.begin(scene.device)
        try:
            for name in STEPS:
                if name not in given.only:
                    continue
                bar.stage(STEPS[name].title)
                outcome = outcome_of(name, scene)
                outcomes.append(outcome)
                bar.step()
                color = _COLORS[outcome.status]
                bar.console.print(
                    f"[{color}]{outcome.status:8}[/] {name}: {escape(outcome.sentence)}",
                    highlight=False,
                    soft_wrap=True,
                )
                if writes:
                    record.take(scene.device, outcome)
            bar.stage("done")
        except KeyboardInterrupt:
            bar.console.print("interrupted; the outcomes so far are kept")
        finally:
            scene.close()
    rows = [[o.name, o.status, f"{o.seconds:.0f} s", o.sentence] for o in outcomes]
    failed = {i for i, outcome in enumerate(outcomes) if outcome.status == "failed"}
    print_table("make gpu", ("step", "outcome", "time", "what was found"), rows, red=failed)
    if writes:
        _write_pages(record, given.json)
    if failed:
        print(f"the logs of the judges are in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


def _write_pages(record: Record, file: Path) -> None:
    print(f"written to {file}")
    if file == FILE:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(between_markers("gpu", record.results(), page), encoding="utf-8")
        print(f"and {PAGE}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    add_only(parser, STEPS)
    parser.add_argument("--json", type=Path, default=FILE, metavar="FILE")
    parser.add_argument(
        "--write", action="store_true", help="write the file, also after a rehearsal on a CPU"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
