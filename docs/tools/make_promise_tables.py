"""Prints the numbers of docs/design/guarantees.md, sections 6 to 9.

Usage: python -m docs.tools.make_promise_tables [TABLE ...]      (ten minutes for all of them)

The worlds are those of the tests in tests/statistics, with more runs.
"""

import sys
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np

from app.core.preference import FloatArray
from tests.statistics.worlds import absorptions, audits, questions, streams, ties
from tests.statistics.worlds.audits import ALPHA, Asked, Expiring, Phase
from tests.statistics.worlds.calibrations import (
    MIDDLING,
    OTHER,
    STRONG,
    WEAK,
    Calibrations,
)
from tests.statistics.worlds.normal import NormalJudge
from tests.statistics.worlds.streams import Change

SEED = 2026


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of Markdown."""
    print(f"\n{title}\n")
    print("| " + " | ".join(headings) + " |")
    print("|---" * len(headings) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def named(judge: NormalJudge) -> str:
    """Accuracy and AUROC."""
    return f"{judge.accuracy:.3f}, {judge.auroc:.3f}"


def spread(delays: FloatArray) -> str:
    """Median and 90% quantile."""
    return f"{np.median(delays):.0f} ({np.quantile(delays, 0.9):.0f})"


def share(rate: float, runs: int) -> str:
    """A share of runs with its standard error."""
    return f"{rate:.3f} ({np.sqrt(rate * (1 - rate) / runs):.3f})"


def print_monitor(runs: int = 1000) -> None:
    """False alarms and delays of the monitor and of a sliding window."""
    steady = [[Phase(10_000, error)] for error in (0.08, ALPHA)]
    changed = [[Phase(1000, 0.08), Phase(4000, error)] for error in (0.15, 0.20, 0.30)]
    detectors: dict[str, Callable[[Sequence[Phase]], list[int | None]]] = {
        "the monitor": lambda phases: [
            run.alarm_at for run in audits.runs(phases, runs, seed=SEED)
        ],
        "sliding window of 200, binomial 5%": lambda phases: audits.window_alarms(
            phases, runs, seed=SEED
        ),
    }
    rows = []
    for name, alarms in detectors.items():
        false = " / ".join(f"{audits.alarm_rate(alarms(each)):.3f}" for each in steady)
        rows.append([name, false, *(spread(audits.delays(alarms(p), 1000)) for p in changed)])
    headings = ["detector", "false alarms in 10,000 at 0.08 / 0.10", "0.15", "0.20", "0.30"]
    table("monitor: median (90%) labels to the alarm, 1,000 labels at 0.08 before", headings, rows)


def print_certificate(runs: int = 1000) -> None:
    """Labels until the certificate, and false certificates."""
    rows = []
    for error in (0.05, 0.073, 0.08, ALPHA):
        found = audits.runs([Phase(10_000, error)], runs, seed=SEED)
        places = np.array([run.certified_at or np.inf for run in found])
        share = f"{np.isfinite(places).mean():.3f}"
        rows.append([f"{error}", share, spread(places) if error < ALPHA else "-"])
    table("certificate", ["error", "certified within 10,000", "labels, median (90%)"], rows)


def print_asked(runs: int = 1000) -> None:
    """Draws of which several are of one question, counted by draw and by question."""
    rows = []
    for rate in (0.02, 0.10, 0.30, 1.0):
        row = [f"{rate:g}"]
        for by_question in (False, True):
            found = audits.asked_runs(
                Asked(rate=rate), labels=5000, count=runs, seed=SEED, by_question=by_question
            )
            row += [share(each, runs) for each in found]
        rows.append(row)
    names = ("alarm", "certificate", "interval misses")
    both = (f"{name}, by {unit}" for unit in ("draw", "question") for name in names)
    table("10 pairs a question, correlation 0.3, error 0.10: 5,000 labels", ["rate", *both], rows)


def print_price(runs: int = 400) -> None:
    """Labels to the alarm with several pairs a question."""
    for error in (0.20, 0.30):
        rows = []
        for pairs in (1, 4, 10):
            row = [str(pairs)]
            for rate in (0.02, 0.10, 0.30):
                found = audits.asked_delays(
                    Asked(pairs=pairs, rate=rate), error, runs, seed=SEED, by_question=True
                )
                row.append(f"{spread(found)}, {np.median(found) / rate:,.0f}")
            rows.append(row)
        headings = ["pairs a question", *(f"rate {rate}" for rate in (0.02, 0.10, 0.30))]
        table(f"labels to the alarm at {error}, median (90%), and judgments", headings, rows)


def print_criteria(runs: int = 400) -> None:
    """Alarms of any criterion of a version, and labels to the alarm of the k-th."""
    rows = []
    for criteria in (1, 5, 20):
        row = [str(criteria)]
        for shared in (False, True):
            rang = audits.share_with_any_alarm(
                criteria, labels=5000, count=runs, seed=SEED, shared=shared
            )
            row.append(share(rang, runs))
        for error in (0.20, 0.30):
            found = audits.asked_delays(
                Asked(pairs=1), error, runs, seed=SEED, by_question=True, place=criteria
            )
            row.append(spread(found))
        rows.append(row)
    headings = ["criteria", "any alarm, 5% each", "any alarm, shared", "last one, 0.20", "0.30"]
    table("criteria: any alarm within 5,000 labels each, labels to the alarm", headings, rows)


def print_expired(runs: int = 1000) -> None:
    """Certificates where draws expire."""
    rows = []
    for world in (Expiring(ALPHA, 0.036, True), Expiring(ALPHA, 0.02, False)):
        found = audits.expiring_runs(world, labels=5000, count=runs, seed=SEED)
        certified = np.mean([run.certified for run in found])
        alarms = np.mean([run.alarm for run in found])
        which = "all of them errors" if world.only_errors else "like the others"
        shown = [share(float(each), runs) for each in (certified, alarms)]
        rows.append([f"{world.expired:.1%}, {which}", *shown])
    headings = ["expired", "certified", "alarm"]
    table("error 0.10, 5,000 draws", headings, rows)
    rows = []
    for expired in (0.0, 0.01, 0.02, 0.036):
        world = Expiring(0.05, expired, False)
        found = audits.expiring_runs(world, labels=10_000, count=runs, seed=SEED)
        places = np.array([run.certified_at or np.inf for run in found])
        rows.append([f"{expired:.1%}", spread(places)])
    table("labels to the certificate at an error of 0.05", ["expired", "median (90%)"], rows)


def print_streams(runs: int = 400) -> None:
    """False alarms and delays of the conformal martingales."""
    like = streams.uncertainty(MIDDLING)
    cases = {
        "uncertainty, (0.807, 0.744) to (0.738, 0.685)": (like, streams.uncertainty(WEAK)),
        "label mass, mean distance from 1: 0.02 to 0.04": (
            streams.label_mass(0.02),
            streams.label_mass(0.04),
        ),
        "position gap, half-normal: width 1 to 1.3": (
            streams.position_gap(1.0),
            streams.position_gap(1.3),
        ),
    }
    rows = []
    for name, (before, after) in cases.items():
        false = audits.alarm_rate(streams.alarms(Change(before, before), runs, seed=SEED))
        alarms = streams.alarms(Change(before, after), runs, seed=SEED)
        rows.append([name, f"{false:.3f}", spread(audits.delays(alarms, 1000))])
    table("drift: one stream", ["stream and change", "false alarms", "judgments"], rows)


def print_replicas(runs: int = 200) -> None:
    """Replicas that share a calibration set."""
    shares = streams.equal_shares

    def of_three(largest: list[float]) -> float:
        return shares(largest) / 3

    like, unlike = streams.uncertainty(MIDDLING), streams.uncertainty(WEAK)
    steady, few = Change(like, like), Change(like, like, scores=100)
    rows = []
    for replicas in (1, 4, 16):
        row = [str(replicas)]
        rules: tuple[tuple[Change, streams.Rule], ...] = ((steady, max), (steady, shares))
        for change, rule in (*rules, (few, shares)):
            alarms = streams.alarms(change, runs, seed=SEED, replicas=replicas, rule=rule)
            row.append(f"{audits.alarm_rate(alarms):.3f}")
        for rule in (shares, of_three):
            change = Change(like, unlike)
            alarms = streams.alarms(change, runs, seed=SEED, replicas=replicas, rule=rule)
            row.append(spread(audits.delays(alarms, 1000)))
        rows.append(row)
    headings = ["replicas", "any at 20", "shares", "shares, 100 scores", "one stream", "three"]
    table("drift: replicas", headings, rows)


def print_mean_limit(runs: int = 400) -> None:
    """How often a limit on the mean uncertainty sees the change."""
    rng, change = (
        np.random.default_rng(SEED),
        Change(streams.uncertainty(MIDDLING), streams.uncertainty(WEAK)),
    )
    sliding = disjoint = 0
    for _ in range(runs):
        scores, values = change.draw(rng)
        sums = np.cumsum(np.append(0.0, values))
        beyond = np.abs((sums[1000:] - sums[:-1000]) / 1000 - scores.mean()) > 0.07
        sliding, disjoint = sliding + bool(beyond.any()), disjoint + bool(beyond[::1000].any())
    print("\nmean uncertainty over 1,000 off by 0.07 nats within 9,000 judgments: sliding windows")
    print(f"{sliding / runs:.3f}, windows one after the other {disjoint / runs:.3f}")


def print_questions(runs: int = 1000) -> None:
    """Coverage and P(over) if all pairs of a question count, and if one does."""
    rows = []
    for count, pairs, correlation in ((333, 3, 0.3), (200, 5, 0.6), (100, 10, 0.6), (300, 10, 0.3)):
        world = questions.Questions(
            judge=MIDDLING, questions=count, pairs=pairs, correlation=correlation
        )
        rules: tuple[questions.Rule, ...] = ("ignore", "one")
        found = [questions.measured(world, rule, runs, seed=SEED) for rule in rules]
        shown = [f"{coverage:.2f} / {over:.3f}" for coverage, over in found]
        rows.append([f"{count} x {pairs}, correlation {correlation}", *shown])
    headings = ["calibration: coverage / P(over)", "all pairs", "one pair a question"]
    table("several pairs of one question", headings, rows)


def print_lazy(runs: int = 4000) -> None:
    """Labels that lazy labeling asks."""
    rows = []
    for judge in (WEAK, OTHER, MIDDLING, STRONG):
        row = [named(judge)]
        for n in (500, 1000, 2000, 5000):
            count = runs if n < 2000 else runs // 4
            found = Calibrations.draw(judge, n, count, np.random.default_rng(SEED)).pac(ALPHA)
            row.append(f"{found.coverage.mean():.3f} / {found.asked.mean():.0f}")
        rows.append(row)
    headings = ["coverage / labels asked", *(f"n = {n}" for n in (500, 1000, 2000, 5000))]
    table("labels asked lazily", headings, rows)


def print_absorptions(runs: int = 600) -> None:
    """The next threshold after an alarm, by the way in which audits are absorbed."""
    rows = []
    for after in (MIDDLING, OTHER, WEAK):
        for count in (500, 1000):
            row = [named(after), str(count)]
            for way in get_args(absorptions.Way):
                over, coverage = absorptions.over(STRONG, after, way, count, runs, seed=SEED)
                row.append(f"{with_error(over, runs)}, {coverage:.2f}")
            rows.append(row)
    headings = ["judge after the change", "audits since the alarm", *get_args(absorptions.Way)]
    table("absorptions after an alarm: P(over), coverage", headings, rows)


def print_ties(runs: int = 400) -> None:
    """False alarms of the drift if the traffic has ties."""
    rows = []
    for judge in (MIDDLING, STRONG):
        for share in (0.0, 0.12, 0.19):
            row = [named(judge), f"{share:.2f}"]
            for keeps in (False, True):
                rate = ties.alarm_rate(
                    judge, share, runs, keeps_ties=keeps, judged=10_000, seed=SEED
                )
                row.append(with_error(rate, runs))
            rows.append(row)
    headings = ["judge", "ties", "left out", "scores kept"]
    table("false alarms of the drift in 10,000 judgments", headings, rows)


def with_error(share: float, runs: int) -> str:
    """A share with its standard error."""
    return f"{share:.3f} ({np.sqrt(share * (1 - share) / runs):.3f})"


TABLES: dict[str, Callable[[], None]] = {
    name.removeprefix("print_"): function
    for name, function in list(globals().items())
    if name.startswith("print_")
}

if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        TABLES[name]()
