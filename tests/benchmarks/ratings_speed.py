"""Measures the bootstrap of ratings against that of evalica, on the same battles.

python -m tests.benchmarks.ratings_speed [--rounds N]

100,000 accepted battles of 100 models, all with a winner; times are without imports and reading.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pyarrow
from evalica import Winner, bootstrap, bradley_terry
from pyarrow import parquet
from scipy.special import expit

from app.core.preference import FloatArray
from app.ratings.bootstrap import cells_of, replicates
from app.ratings.bradley_terry import centered, ratings, structure_of
from app.ratings.intervals import intervals_of
from app.ratings.outcomes import games_of, views_of
from app.ratings.rows import read_battles

MODELS, BATTLES, QUESTIONS = 100, 100_000, 50_000
# Logits to points.
POINTS = 400 / np.log(10)


def battles(path: Path) -> pandas.DataFrame:
    """Writes battles for scope-judge, and returns the same for evalica."""
    rng = np.random.default_rng(0)
    strength = rng.normal(0.0, 1.0, MODELS)
    first = rng.integers(MODELS, size=BATTLES)
    second = (first + rng.integers(1, MODELS, size=BATTLES)) % MODELS
    won = rng.random(BATTLES) < expit(strength[first] - strength[second])
    names = np.array([f"model-{number:03d}" for number in range(MODELS)])
    columns = {
        "question_id": np.arange(BATTLES) // (BATTLES // QUESTIONS),
        "model_a": names[first],
        "model_b": names[second],
        "winner": np.where(won, "model_a", "model_b"),
        "p_bar": won.astype(float),
    }
    parquet.write_table(pyarrow.table(columns), path)
    winner = [Winner.X if each else Winner.Y for each in won]
    return pandas.DataFrame({"left": names[first], "right": names[second], "winner": winner})


def main() -> None:
    """Prints seconds, those of the processor, and the mean half-width of 95% intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "battles.parquet"
        frame = battles(path)
        found = read_battles([path])

    def ours() -> FloatArray:
        """The view "accepted", as `app.ratings` computes it."""
        cells = cells_of(games_of(found, views_of(found)["accepted"]))
        structure = structure_of(cells.whole)
        theta = ratings(cells.whole, structure, prior_sd=5.76)
        (drawn,) = replicates([cells], [theta], rounds=rounds, seed=0, prior_sd=5.76)
        low, high = intervals_of(
            theta, centered(drawn.theta, structure), np.zeros(MODELS), structure, level=0.95
        )
        return high - low

    def theirs() -> FloatArray:
        """evalica's bootstrap by percentiles: its default also solves once a battle."""
        result = bootstrap(
            bradley_terry,
            frame["left"],
            frame["right"],
            frame["winner"],
            n_resamples=rounds,
            bootstrap_method="percentile",
            random_state=0,
        )
        # evalica's scores are odds.
        return np.asarray(np.log(result.high / result.low), dtype=np.float64)

    programs: dict[str, Callable[[], FloatArray]] = {"scope-judge": ours, "evalica": theirs}
    for name, run in programs.items():
        begun, cpu = time.perf_counter(), time.process_time()
        width = POINTS * float(run().mean()) / 2
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        print(f"{name}: {seconds:.1f} s, of the processor {cpu:.1f} s, half-width {width:.1f}")


if __name__ == "__main__":
    main()
