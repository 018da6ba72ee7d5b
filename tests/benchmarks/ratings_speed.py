"""Measures the bootstrap of ratings against that of evalica, on the same battles.

python -m tests.benchmarks.ratings_speed [--rounds N] [--only NAME]

100,000 accepted battles of 100 models, all with a winner. Each program runs once, in a process of
its own; its time is without start and imports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyarrow import csv, parquet
from rich.console import Console
from rich.table import Table
from scipy.special import expit

MODELS, BATTLES, QUESTIONS = 100, 100_000, 50_000
NAMES = ("scope-judge", "evalica")
# Logits to points.
POINTS = 400 / np.log(10)


class Measured(NamedTuple):
    """One program.

    Args:
        seconds: Seconds of rating and bootstrap.
        cpu_s: Seconds of the processor for them, in all processes.
        read_s: Seconds of reading the file.
        widths: Half-widths of the intervals, in points.
    """

    seconds: float
    cpu_s: float
    read_s: float
    widths: list[float]


def battles(folder: Path) -> dict[str, Path]:
    """Writes the same battles for each program."""
    rng = np.random.default_rng(0)
    strength = rng.normal(0.0, 1.0, MODELS)
    first = rng.integers(MODELS, size=BATTLES)
    second = (first + rng.integers(1, MODELS, size=BATTLES)) % MODELS
    won = rng.random(BATTLES) < expit(strength[first] - strength[second])
    names = pyarrow.array([f"model-{number:03d}" for number in range(MODELS)])
    models = {"model_a": names.take(first), "model_b": names.take(second)}
    question = np.arange(BATTLES) // (BATTLES // QUESTIONS)
    winner = np.where(won, "model_a", "model_b")
    ours = folder / "battles.parquet"
    columns = {"question_id": question, **models, "winner": winner, "p_bar": won.astype(float)}
    parquet.write_table(pyarrow.table(columns), ours)
    left_right = folder / "evalica.csv"
    table = {"left": models["model_a"], "right": models["model_b"]}
    winner = np.where(won, "left", "right")
    csv.write_csv(pyarrow.table({**table, "winner": winner}), left_right)
    return dict(zip(NAMES, (ours, left_right), strict=True))


def by_scope_judge(path: Path, rounds: int) -> Measured:
    """The view "accepted", as `app.ratings` computes it."""
    from app.ratings.bootstrap import cells_of, replicates
    from app.ratings.bradley_terry import centered, ratings, structure_of
    from app.ratings.intervals import intervals_of
    from app.ratings.outcomes import games_of, views_of
    from app.ratings.rows import read_battles

    begun = time.perf_counter()
    found = read_battles([path])
    read, cpu = time.perf_counter(), time.process_time()
    cells = cells_of(games_of(found, views_of(found)["accepted"]))
    structure = structure_of(cells.whole)
    theta = ratings(cells.whole, structure, prior_sd=5.76)
    (resampled,) = replicates([cells], [theta], rounds=rounds, seed=0, prior_sd=5.76)
    drawn = centered(resampled.theta, structure)
    low, high = intervals_of(theta, drawn, np.zeros(MODELS), structure, level=0.95)
    widths = POINTS * (high - low) / 2.0
    seconds, cpu_s = time.perf_counter() - read, time.process_time() - cpu
    return Measured(seconds, cpu_s, read - begun, widths.tolist())


def by_evalica(path: Path, rounds: int) -> Measured:
    """evalica's bootstrap by percentiles: its default, BCa, also solves once for each battle."""
    import pandas
    from evalica import Winner, bootstrap, bradley_terry

    words = {"left": Winner.X, "right": Winner.Y}
    begun = time.perf_counter()
    frame = pandas.read_csv(path)
    read, cpu = time.perf_counter(), time.process_time()
    found = bootstrap(
        bradley_terry,
        frame["left"],
        frame["right"],
        frame["winner"].map(words),
        n_resamples=rounds,
        bootstrap_method="percentile",
        random_state=0,
    )
    # evalica's scores are odds.
    widths = POINTS * np.log(found.high / found.low) / 2.0
    seconds, cpu_s = time.perf_counter() - read, time.process_time() - cpu
    return Measured(seconds, cpu_s, read - begun, widths.tolist())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each program, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        run = {"scope-judge": by_scope_judge, "evalica": by_evalica}[given.one[0]]
        print(json.dumps(run(Path(given.one[1]), given.rounds)))
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="scope-judge-ratings-") as folder:
        for name, path in battles(Path(folder)).items():
            if name not in given.only:
                continue
            rounds = ["--rounds", str(given.rounds)]
            command = [sys.executable, "-m", __spec__.name, "--one", name, str(path), *rounds]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name] = Measured(*json.loads(done.stdout))
    tell(found, given.rounds)
    if given.json:
        shown = {name: {**each._asdict()} for name, each in found.items()}
        given.json.write_text(json.dumps(shown, indent=1) + "\n")


def tell(found: dict[str, Measured], rounds: int) -> None:
    """Prints a row for each program."""
    table = Table(title=f"{BATTLES:,} battles of {MODELS} models, {rounds} rounds")
    for heading in (
        "program",
        "read, s",
        "bootstrap, s",
        "of the processor, s",
        "mean half-width of 95% intervals",
    ):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for name, each in found.items():
        width = f"{np.mean(each.widths):.1f}"
        table.add_row(name, f"{each.read_s:.2f}", f"{each.seconds:.1f}", f"{each.cpu_s:.1f}", width)
    Console().print(table)


if __name__ == "__main__":
    main()
