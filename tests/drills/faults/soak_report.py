"""Summaries of a soak: one line during the run, figures and sentences at its end."""

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.drills.faults.soak import Soak

# Median resident memory of the last quarter over that of the second; more is a leak.
_MOST_GROWTH = 1.10
_KEPT_SAMPLES = 200


def progress_line(soak: "Soak", elapsed_s: float) -> str:
    """One line about the progress."""
    judged: Mapping[str, int] = soak.log.counts.get("judge", {})
    given = sum(n for outcome, n in judged.items() if outcome.startswith("200"))
    fault = soak.faults[-1]["name"] if soak.faults else "no fault yet"
    return (
        f"{elapsed_s:.0f} s, {given} judged, {judged.get('429 overloaded', 0)} refused, "
        f"{soak.rss_mib[-1] if soak.rss_mib else 0:.0f} MiB, {fault}, {len(soak.log.wrong)} wrong"
    )


def growth_of(rss_mib: list[float]) -> float | None:
    """Median of the last quarter over that of the second; None with too few samples."""
    quarter = len(rss_mib) // 4
    if quarter < 5:
        return None
    return statistics.median(rss_mib[-quarter:]) / statistics.median(rss_mib[quarter : 2 * quarter])


def summary_of(soak: "Soak") -> dict[str, Any]:
    """All figures and broken promises, and both as sentences."""
    ledgers, growth = soak.ledgers.values(), growth_of(soak.rss_mib)
    lost, doubled = sum(x.lost for x in ledgers), sum(x.doubled for x in ledgers)
    wrong = list(soak.log.wrong) + [text for ledger in ledgers for text in ledger.wrong]
    if lost or doubled:
        wrong.append(f"{lost} examples lost, {doubled} doubled")
    if growth is not None and growth > _MOST_GROWTH:
        wrong.append(f"memory grew to {growth:.2f} of its earlier size")
    if soak.pending_at_the_end != 0:
        wrong.append(f"{soak.pending_at_the_end} comparisons are pending after the end")
    every = max(1, len(soak.rss_mib) // _KEPT_SAMPLES)
    summary: dict[str, Any] = {
        "minutes": soak.seconds / 60,
        "capacity_per_s": soak.capacity,
        "rate_per_s": 2 * soak.capacity,
        "faults": soak.faults,
        "counts": {kind: dict(counts) for kind, counts in soak.log.counts.items()},
        "slowest_s": soak.log.slowest_s,
        "judgment_s": {f"p{q}": soak.log.quantile_s(q / 100) for q in (50, 90, 99)},
        "verdicts_checked": soak.verdicts,
        "calibrations_checked": sum(ledger.checked for ledger in ledgers),
        "examples_acknowledged": sum(ledger.acknowledged for ledger in ledgers),
        "versions_written": {ledger.name: ledger.version for ledger in ledgers},
        "lost": lost,
        "doubled": doubled,
        "rss_mib": soak.rss_mib[::every],
        "rss_growth": growth,
        "key_noticed_s": soak.key_noticed_s,
        "pending_at_the_end": soak.pending_at_the_end,
        "wrong": wrong,
    }
    return summary | {"lines": _lines(summary)}


def _lines(summary: dict[str, Any]) -> list[str]:
    judged, growth = summary["counts"].get("judge", {}), summary["rss_growth"]
    rss = summary["rss_mib"]
    p50, p99 = summary["judgment_s"]["p50"], summary["judgment_s"]["p99"]
    refused_s = summary["slowest_s"].get("judge", {}).get("429 overloaded")
    names = ", ".join(dict.fromkeys(fault["name"] for fault in summary["faults"])) or "none"
    return [
        f"{summary['minutes']:.1f} minutes at {summary['rate_per_s']:.0f} comparisons/s; "
        f"{len(summary['faults'])} faults: {names}.",
        "`/judge`: " + ", ".join(f"{n} x {outcome}" for outcome, n in judged.items()) + ".",
        "Slowest answers: judgments "
        + (f"p50 {p50:.2f} s, p99 {p99:.2f} s" if p50 is not None else "none")
        + ("" if refused_s is None else f"; refusals at most {refused_s:.2f} s")
        + ".",
        f"{summary['verdicts_checked']} judgments checked against "
        f"{summary['calibrations_checked']} calibrations; of {summary['examples_acknowledged']} "
        f"acknowledged examples {summary['lost']} lost, {summary['doubled']} doubled.",
        f"Memory: {rss[0]:.0f} MiB at the start, {rss[-1]:.0f} MiB at the end; last quarter over "
        f"second: {'too short' if growth is None else f'{growth:.3f}'}."
        if rss
        else "Memory: no samples.",
        f"A key change took effect after {summary['key_noticed_s']:.1f} s at most; "
        f"pending comparisons at the end: {summary['pending_at_the_end']}.",
        "Wrong: " + ("; ".join(summary["wrong"][:10]) or "nothing") + ".",
    ]
