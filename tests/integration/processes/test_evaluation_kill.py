"""Tests that killed runs over 1,000 pairs have the same results as an undisturbed run."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from app.evaluation.judgments.interview import CHUNK_PAIRS, CHUNKS_IN_FLIGHT
from app.evaluation.judgments.jsonl import read_judgments
from tests.integration.processes.slow_evaluation import PAIRS, judge
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
KILLS = 3


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def run_until_killed(folder: Path, *, more: int) -> None:
    """Starts a run, and kills it after it has written a number of lines."""
    file = folder / "judgments.jsonl"
    wanted = lines(file) + more
    command = [sys.executable, "-m", "tests.integration.processes.slow_evaluation", str(folder)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        deadline = time.monotonic() + PATIENCE_S
        while lines(file) < wanted:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_resumes_and_judges_no_pair_twice(tmp_path: Path) -> None:
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    killed.mkdir()
    undisturbed.mkdir()
    for _ in range(KILLS):
        run_until_killed(killed, more=200)
    recorded = lines(killed / "judgments.jsonl")
    assert 0 < recorded < PAIRS
    (killed / "seen").rename(tmp_path / "seen-before")
    asyncio.run(judge(killed, latency_s=0.0))
    asyncio.run(judge(undisturbed, latency_s=0.0))

    # The last run judged exactly the pairs that had not been recorded.
    assert sum(map(int, (killed / "seen").read_text().split())) == PAIRS - recorded
    # Only the pairs of the interrupted engine calls were judged again.
    seen_before = sum(map(int, (tmp_path / "seen-before").read_text().split()))
    assert recorded <= seen_before <= recorded + KILLS * CHUNKS_IN_FLIGHT * CHUNK_PAIRS
    # Each pair has exactly one line, with the same result as an undisturbed run.
    found = [json.loads(line) for line in (killed / "judgments.jsonl").read_text().splitlines()]
    assert sorted(int(line["id"]) for line in found) == list(range(PAIRS))
    key = [
        {p.id: p for p in read_judgments([f / "judgments.jsonl"]).pairs}
        for f in (killed, undisturbed)
    ]
    assert key[0] == key[1]
