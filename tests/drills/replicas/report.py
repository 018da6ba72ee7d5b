"""The tables of `make replicas`, two of which docs/guides/deploy/replicas.md has."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.drills.replicas.propagation import Delays
from tests.drills.replicas.rolling import Rolling
from tests.drills.replicas.throughput import Sample, Way

Rows = list[tuple[str, ...]]

_WAYS: tuple[Way, ...] = ("direct", "haproxy")
_SAID = {"computing": "compute (scripted)", "waiting": "wait for judges elsewhere (openai)"}
_BESIDE = ("generator", "haproxy", "redis", "judges")


class Ratio(NamedTuple):
    """Two replicas compared with one, with requests on one of the two ways.

    Args:
        one: Comparisons a second of one replica; median.
        two: Comparisons a second of two replicas; median.
        ratio: Median of the ratios of the repeats.
        lowest: Smallest ratio of a repeat.
        highest: Largest ratio of a repeat.
        alone_per_1000_s: CPU seconds of a replica for 1,000 comparisons while the other is idle.
        beside_per_1000_s: The same while the other one is as busy.
        rest_per_1000_s: CPU seconds of all other processes for 1,000 comparisons with two replicas.
        generator_share: Share of the load generator in the CPU seconds of all these processes with
            two replicas.
        cpu_allows: Ratio that these CPU seconds allow on two cores without other work: 2 cores over
            the total cost of 1,000 comparisons, compared with 1 core over their cost in a replica
            alone.
        others_cores: Cores that other programs on the machine used; median.
    """

    one: float
    two: float
    ratio: float
    lowest: float
    highest: float
    alone_per_1000_s: float
    beside_per_1000_s: float
    rest_per_1000_s: float
    generator_share: float
    cpu_allows: float
    others_cores: float

    @classmethod
    def of(cls, samples: Sequence[Sample], way: Way) -> "Ratio":
        """Computes the ratio from samples that were taken in turns."""
        one, two = (
            [sample for sample in samples if (sample.way, sample.replicas) == (way, n)]
            for n in (1, 2)
        )
        ratios = [b.rate / a.rate for a, b in zip(one, two, strict=True)]
        alone = statistics.median(sample.per_1000_s for sample in one)
        beside = statistics.median(sample.per_1000_s for sample in two)
        rest = statistics.median(
            1000 * sum(sample.cpu_s[name] for name in _BESIDE) / (sample.rate * sample.seconds)
            for sample in two
        )
        return cls(
            one=statistics.median(sample.rate for sample in one),
            two=statistics.median(sample.rate for sample in two),
            ratio=statistics.median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            alone_per_1000_s=alone,
            beside_per_1000_s=beside,
            rest_per_1000_s=rest,
            generator_share=statistics.median(
                sample.cpu_s["generator"] / sum(sample.cpu_s.values()) for sample in two
            ),
            cpu_allows=2 * alone / (beside + rest),
            others_cores=statistics.median(sample.others_cores for sample in (*one, *two)),
        )


def rolling_rows(rolling: Rolling) -> Rows:
    """The clients' view of the rolling restart, one line for each route."""
    return [
        ("route", "requests", "answers", "slowest"),
        *(
            (
                f"`/{route}`",
                f"{sum(counts.values()):,}",
                ", ".join(f"{count:,} x {outcome}" for outcome, count in counts.items()),
                f"{rolling.slowest_s[route]:.2f} s",
            )
            for route, counts in rolling.requests.items()
        ),
    ]


def rolling_text(rolling: Rolling) -> str:
    """A summary of the rolling restart in one line."""
    return (
        f"{rolling.restarts} restarts in {rolling.seconds:.0f} s: {rolling.failed} failed "
        f"requests, {rolling.judgments:,} verdicts checked against {rolling.versions} versions, of "
        f"{rolling.examples:,} acknowledged examples {rolling.lost} lost and {rolling.doubled} "
        f"doubled, {len(rolling.wrong)} other faults"
    )


def delay_rows(delays: Delays) -> Rows:
    """The delays of versions, one line for each way."""
    said = {
        "polled": "it judges all the time",
    }
    return [
        ("how", "versions", "median", "slowest"),
        *(
            (
                said[name],
                f"{len(seconds)}",
                f"{1000 * statistics.median(seconds):.0f} ms",
                f"{1000 * max(seconds):.0f} ms",
            )
            for name, seconds in delays._asdict().items()
        ),
    ]


def ratios_of(throughput: Mapping[str, Sequence[Sample]]) -> dict[tuple[str, Way], Ratio]:
    """Every ratio, by the replicas' work and the way of the requests."""
    return {
        (kind, way): Ratio.of(samples, way) for kind, samples in throughput.items() for way in _WAYS
    }


def rate_rows(ratios: Mapping[tuple[str, Way], Ratio]) -> Rows:
    """Comparisons a second."""
    return [
        ("replicas", "requests come", "one", "two", "ratio", "lowest - highest"),
        *(
            (
                _SAID[kind],
                way if way == "direct" else "through haproxy",
                f"{found.one:,.0f}/s",
                f"{found.two:,.0f}/s",
                f"{found.ratio:.2f}",
                f"{found.lowest:.2f} - {found.highest:.2f}",
            )
            for (kind, way), found in ratios.items()
        ),
    ]


def cpu_rows(ratios: Mapping[tuple[str, Way], Ratio]) -> Rows:
    """CPU seconds for 1,000 comparisons."""
    return [
        (
            "replicas",
            "requests come",
            "replica alone",
            "beside another",
            "all else",
            "of it the generator",
            "ratio that this allows",
            "cores that others had",
        ),
        *(
            (
                _SAID[kind],
                way if way == "direct" else "through haproxy",
                f"{found.alone_per_1000_s:.3f} s",
                f"{found.beside_per_1000_s:.3f} s",
                f"{found.rest_per_1000_s:.3f} s",
                f"{found.generator_share:.0%} of all",
                f"{found.cpu_allows:.2f}" if kind == "computing" else "-",
                f"{found.others_cores:.2f}",
            )
            for (kind, way), found in ratios.items()
        ),
    ]


def content(
    rolling: Rolling, delays: Delays, throughput: Mapping[str, Sequence[Sample]]
) -> dict[str, Any]:
    """All figures, for JSON."""
    return {
        "rolling": {**vars(rolling), "failed": rolling.failed},
        "delays_s": delays._asdict(),
        "throughput": {
            kind: {
                "ratios": {way: Ratio.of(samples, way)._asdict() for way in _WAYS},
                "samples": [sample._asdict() for sample in samples],
            }
            for kind, samples in throughput.items()
        },
    }
