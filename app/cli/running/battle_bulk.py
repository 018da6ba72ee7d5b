"""`scope-judge battles --ray`: judges battles in bulk on a Ray cluster."""

import json
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from app import __version__
from app.cli.running.battles import (
    BattleOptions,
    judged_battles,
    print_battles,
    read_battles,
    refuse_failed,
    write_battles,
)
from app.cli.running.bulk import judge_in_bulk
from app.cli.running.run import Results, unaskable
from app.core.errors import ScopeJudgeError
from app.files.battle_rows import Provenance
from app.files.writing import replace_file
from app.fleet.output import Output
from app.service.scoring.prompts import load_template
from app.settings import read_settings


def judge_battles_in_bulk(
    files: Sequence[Path], options: BattleOptions, *, address: str | None, replicas: int | None
) -> None:
    """Judges battles on a Ray cluster; finished parts of an earlier run are not judged again.

    Args:
        files: Files, folders and patterns.
        options: How the run reads, judges and writes.
        address: Address of the cluster; None joins this machine's, or starts one.
        replicas: Number of judges; None for as many as fit.

    Raises:
        CommandError: The run fails, or a battle got no judgment.
    """
    begun = time.monotonic()
    work = options.out.with_name(f"{options.out.name}.partial.ray")
    entries = read_battles(files, options)
    if options.overwrite:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(exist_ok=True)
    shown = {e.item.key: e.item.fields for e in entries}
    rows = [{**f, "id": k} for k, f in shown.items() if not isinstance(f, ScopeJudgeError)]
    comparisons = work / "comparisons.jsonl"
    replace_file(comparisons, rows)
    output = judge_in_bulk(
        [comparisons],
        dict(options.criterion),
        work / "judged",
        options.batch_size,
        shape="pairs",
        address=address,
        replicas=replicas,
        may_fail=True,
    )
    results = {**unaskable(entry.item for entry in entries), **_results_in(output)}
    provenance = _provenance(output, options.seed)
    write_battles(entries, results, provenance=provenance, options=options)
    shutil.rmtree(work)
    seconds = time.monotonic() - begun
    judged = judged_battles(entries, results, options.seed)
    print_battles(judged, provenance, asked=len(rows), seconds=seconds)
    refuse_failed(judged)


def _results_in(output: Output) -> Results:
    """The results by key, each with the time at which its part was finished."""
    results: Results = {}
    for part in sorted((output.folder / "parts").glob("*.jsonl")):
        finished = datetime.fromtimestamp(part.stat().st_mtime, UTC)
        timestamp = finished.isoformat(timespec="seconds")
        for line in part.read_text(encoding="utf-8").split("\n")[:-1]:
            result = json.loads(line)
            results[result["id"]] = {**result, "timestamp": timestamp}
    return results


def _provenance(output: Output, seed: int) -> Provenance:
    judge = json.loads((output.folder / "judge.json").read_text(encoding="utf-8"))
    settings = read_settings()
    template = load_template(settings.prompt_file, prefill=settings.prefill)
    return Provenance(
        judge=judge["judge"],
        fingerprint=judge["fingerprint"],
        template=template.digest,
        version=__version__,
        seed=seed,
    )
