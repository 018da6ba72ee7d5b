"""Measures what a leaderboard's views are worth, on arenas whose true ratings are known.

python docs/tools/make_arena_table.py --work /tmp/arenas    # runs the bundled judge
python docs/tools/make_arena_table.py --written    # only writes the table again

Four arenas of 5,000 battles are judged; an interrupted run resumes with the same --work. It
writes docs/measured/arena.json and the table of docs/concepts/ratings.md.
"""

import argparse
import json
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from app.demo.arena import FAVORED, MODELS, DemoBattle, battles, true_ratings
from app.ratings.battles import Battles
from app.ratings.board import rated
from app.ratings.outcomes import preferred
from app.ratings.results import RatingSettings, View
from app.ratings.rows import read_battles
from tests import markdown

Floats = NDArray[np.float64]

DOCS = Path(__file__).parents[1]
NUMBERS, PAGE = DOCS / "measured" / "arena.json", DOCS / "concepts" / "ratings.md"
ARENAS, BATTLES, CALIBRATION, ALPHA = 4, 5000, 1000, 0.10
RATES, DRAWS, ROUNDS = (0.05, 0.10), 10, 200
# Views that no label changes.
UNLABELED = ("accepted", "abstain_as_tie", "soft")
# The view "accepted" again, at a smaller alpha.
STRICT, STRICT_ALPHA = "strict", 0.05
SEED = 1000
SETTINGS = RatingSettings(rounds=ROUNDS)
TRUTH = np.array(list(true_ratings().values()))
SIDE = MODELS.index(FAVORED)
OTHERS = np.arange(len(MODELS)) != SIDE
HEADINGS = (
    "view",
    "labeled",
    "spread",
    "error of the others",
    f"misplaces {FAVORED} by",
    "intervals with the truth",
    "half width",
)


@dataclass(frozen=True)
class Row:
    """One view against the truth, over all arenas and draws of labels; in points of the Elo scale.

    Args:
        view: Name of the view.
        labelled: Probability with which a battle was drawn for labeling; 0 without labels.
        boards: Number of boards, one for each arena and draw of labels.
        spread: Slope of ratings on true ratings, without the favored model; 1 is right.
        error: Root mean square error of the other models.
        favor: Mean error of the favored model.
        favor_sd: Standard deviation of that error over the boards.
        rank: Mean rank of the favored model.
        covered: Share of all models' intervals that hold the true rating.
        covered_favored: Share of the favored model's intervals that do.
        width: Median half width of an interval.
    """

    view: str
    labelled: float
    boards: int
    spread: float
    error: float
    favor: float
    favor_sd: float
    rank: float
    covered: float
    covered_favored: float
    width: float


@dataclass(frozen=True)
class Found:
    """The figures of all arenas.

    Args:
        arenas: Number of arenas.
        battles: Battles of each.
        judged: Battles with a judgment, of all arenas.
        coverage: Share of accepted verdicts.
        accepted_error: Share of wrong ones among the accepted.
        strict_coverage: Share of accepted verdicts at STRICT_ALPHA.
        strict_error: Share of wrong ones among these.
        always_error: Share of wrong ones if the judge always answers.
        rows: One row for each view.
    """

    arenas: int
    battles: int
    judged: int
    coverage: float
    accepted_error: float
    strict_coverage: float
    strict_error: float
    always_error: float
    rows: tuple[Row, ...]


@cache
def distinct_battles() -> tuple[DemoBattle, ...]:
    """The battles of all arenas, and behind them those to calibrate with; no question repeats.

    They are shuffled, so that both are random samples of one kind of traffic, although small
    families of tasks run out of questions.
    """
    drawn: dict[str, DemoBattle] = {}
    stream = battles(SEED)
    while len(drawn) < ARENAS * BATTLES + CALIBRATION:
        battle = next(stream)
        drawn.setdefault(battle.question, battle)
    shuffled = list(drawn.values())
    random.Random(SEED).shuffle(shuffled)
    return tuple(shuffled)


def battles_of(number: int) -> tuple[DemoBattle, ...]:
    """The battles of an arena, by its number from 0."""
    return distinct_battles()[number * BATTLES : (number + 1) * BATTLES]


def calibrate(client: httpx.Client) -> None:
    """Calibrates a set with battles of the same arena that no figure counts."""
    client.delete("/calibrations/arena")
    examples = [
        {
            "question": each.question,
            "response_a": each.response_a,
            "response_b": each.response_b,
            "label": "A" if each.winner == "model_a" else "B",
        }
        for each in distinct_battles()[-CALIBRATION:]
    ]
    for start in range(0, len(examples), 250):
        body = {"calibration": "arena", "examples": examples[start : start + 250]}
        client.post("/calibrate", json=body).raise_for_status()


def rows_of(work: Path, number: int) -> Path:
    """The file with the judged battles of an arena."""
    return work / f"rows-{number}.jsonl"


def judge(work: Path, number: int, url: str) -> None:
    """Judges an arena with `scope-judge battles`, which goes on if it was stopped."""
    file = work / f"battles-{number}.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for each in battles_of(number):
            row = each._asdict()
            del row["winner"]
            lines.write(f"{json.dumps(row)}\n")
    # A script imports its neighbors by name, and a test imports the script from elsewhere.
    from docs.tools.running_service import SCOPE_JUDGE

    out = str(rows_of(work, number))
    command = [SCOPE_JUDGE, "battles", str(file), "--out", out, "--alpha", str(ALPHA)]
    environment = {**os.environ, "SCOPE_URL": url}
    subprocess.run([*command, "--calibration", "arena"], env=environment, check=True)


def with_truth(rows: Path, number: int) -> tuple[Battles, Floats]:
    """The judged battles, and 1 for each of which the first model is right."""
    truth = [float(each.winner == "model_a") for each in battles_of(number)]
    return read_battles([rows]), np.array(truth)


def stricter(whole: Battles, rows: Path) -> Battles:
    """The battles with the verdicts of STRICT_ALPHA; the others are abstentions."""
    read = map(json.loads, rows.read_text(encoding="utf-8").splitlines())
    levels = [row["risk_level"] for row in read]
    kept = [level is not None and level <= STRICT_ALPHA for level in levels]
    return replace(whole, verdict=np.where(kept, whole.verdict, np.nan))


def labelled(whole: Battles, truth: Floats, rate: float, seed: int) -> Battles:
    """The battles with labels of people on a random sample."""
    drawn = np.random.default_rng(seed).random(whole.n) < rate
    probability = np.full(whole.n, rate)
    return replace(whole, human=np.where(drawn, truth, np.nan), human_probability=probability)


def errors_of(view: View) -> dict[str, Any]:
    """One board's ratings against the truth, in the order of MODELS."""
    by_model = {each.model: each for each in view.ratings}
    ordered = [by_model[model] for model in MODELS]
    score = np.array([each.score for each in ordered], dtype=float)
    low = np.array([-np.inf if each.low is None else each.low for each in ordered])
    high = np.array([np.inf if each.high is None else each.high for each in ordered])
    slope = np.polyfit(TRUTH[OTHERS], score[OTHERS], 1)[0]
    assert np.isfinite(score).all(), "a model has no rating"
    return {
        "spread": slope,
        "error": score - TRUTH,
        "rank": ordered[SIDE].rank,
        "covered": (low <= TRUTH) & (high >= TRUTH),
        "width": (high - low) / 2,
    }


def row_of(view: str, rate: float, found: Sequence[dict[str, Any]]) -> Row:
    """The means over all boards."""
    error = np.stack([each["error"] for each in found])
    covered = np.stack([each["covered"] for each in found])
    return Row(
        view=view,
        labelled=rate,
        boards=len(found),
        spread=float(np.mean([each["spread"] for each in found])),
        error=float(np.sqrt((error[:, OTHERS] ** 2).mean())),
        favor=float(error[:, SIDE].mean()),
        favor_sd=float(error[:, SIDE].std(ddof=1)) if len(found) > 1 else 0.0,
        rank=float(np.mean([each["rank"] for each in found])),
        covered=float(covered.mean()),
        covered_favored=float(covered[:, SIDE].mean()),
        width=float(np.median([each["width"] for each in found])),
    )


def compared(arenas: Sequence[tuple[Battles, Floats]], strict: Sequence[Battles]) -> Iterator[Row]:
    """Yields a row for each view and share of labels."""
    boards: dict[tuple[str, float], list[dict[str, Any]]] = {
        (STRICT, 0.0): [errors_of(rated(each, SETTINGS)[0].views["accepted"]) for each in strict]
    }
    for number, (whole, truth) in enumerate(arenas):
        print(f"rating arena {number}", flush=True)
        for view in rated(whole, SETTINGS)[0].views.values():
            boards.setdefault((view.name, 0.0), []).append(errors_of(view))
        for rate in RATES:
            for draw in range(DRAWS):
                some = labelled(whole, truth, rate, seed=1000 * number + draw)
                for view in rated(some, SETTINGS)[0].views.values():
                    if view.name not in UNLABELED:
                        boards.setdefault((view.name, rate), []).append(errors_of(view))
    order = [*((name, 0.0) for name in (STRICT, *UNLABELED))]
    order += [(name, rate) for name in ("people", "debiased") for rate in RATES]
    yield from (row_of(*key, boards[key]) for key in order)


def judge_all(work: Path, count: int) -> None:
    """Judges the arenas, with a service if anything is missing."""
    from docs.tools.running_service import running_service

    work.mkdir(parents=True, exist_ok=True)
    if all(rows_of(work, number).exists() for number in range(count)):
        return
    with ExitStack() as stack:
        url = stack.enter_context(running_service(work))
        client = stack.enter_context(httpx.Client(base_url=url, timeout=600))
        if client.get("/calibrations/arena").status_code == 404:
            calibrate(client)
        for number in range(count):
            if not rows_of(work, number).exists():
                judge(work, number, url)


def measure(work: Path, count: int) -> Found:
    """Judges the arenas and compares every view with the truth."""
    judge_all(work, count)
    files = [rows_of(work, number) for number in range(count)]
    arenas = [with_truth(file, number) for number, file in enumerate(files)]
    answered = [preferred(whole.p_bar) for whole, _ in arenas]
    always = np.concatenate(answered)
    truth = np.concatenate([truth for _, truth in arenas])
    verdict = np.concatenate([whole.verdict for whole, _ in arenas])
    strict = [stricter(whole, file) for (whole, _), file in zip(arenas, files, strict=True)]
    strict_verdict = np.concatenate([each.verdict for each in strict])
    accepted, strictly = ~np.isnan(verdict), ~np.isnan(strict_verdict)
    return Found(
        arenas=count,
        battles=BATTLES,
        judged=int(sum(whole.judged.sum() for whole, _ in arenas)),
        coverage=float(accepted.mean()),
        accepted_error=float((verdict != truth)[accepted].mean()),
        strict_coverage=float(strictly.mean()),
        strict_error=float((strict_verdict != truth)[strictly].mean()),
        always_error=float((always != truth).mean()),
        rows=tuple(compared(arenas, strict)),
    )


def table(rows: Sequence[Row]) -> str:
    """The figures of all views, in Markdown."""
    return markdown.table(
        HEADINGS,
        [
            (
                _name(row.view),
                f"{row.labelled:.0%}" if row.labelled else "-",
                f"{row.spread:.2f}",
                f"{row.error:.0f}",
                f"{row.favor:+.0f} ± {row.favor_sd:.0f}",
                f"{row.covered:.0%} ({row.covered_favored:.0%})",
                f"{row.width:.0f}",
            )
            for row in rows
        ],
    )


def _name(view: str) -> str:
    """The product's name of a view."""
    return f"`accepted`, alpha {STRICT_ALPHA:g}" if view == STRICT else f"`{view}`"


def facts(found: Found) -> str:
    """The figures that hold for all views, as a list in Markdown."""
    return (
        f"- {found.arenas} arenas of {found.battles:,} battles were judged.\n"
        f"- At alpha {ALPHA:.2f} the judge gives a verdict on {found.coverage:.1%} of the battles, "
        f"and {found.accepted_error:.1%} of the verdicts are wrong. At alpha {STRICT_ALPHA:.2f} it "
        f"is {found.strict_coverage:.1%} and {found.strict_error:.1%}. If it always answers, "
        f"{found.always_error:.1%} are wrong."
    )


def main() -> None:
    """Measures through a service of its own, and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="folder of the judged arenas")
    parser.add_argument("--arenas", type=int, default=ARENAS)
    parser.add_argument("--written", action="store_true", help="measure nothing; write the table")
    asked = parser.parse_args()
    if not asked.written:
        if asked.work is None:
            parser.error("give --work FOLDER")
        numbers = asdict(measure(asked.work, asked.arenas))
        NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    found = found_in(NUMBERS)
    markdown.put_between_markers("arena", f"{facts(found)}\n\n{table(found.rows)}", PAGE)


def found_in(path: Path) -> Found:
    """The figures in a file."""
    read = json.loads(path.read_text(encoding="utf-8"))
    rows = tuple(Row(**row) for row in read.pop("rows"))
    return Found(**read, rows=rows)


if __name__ == "__main__":
    main()
