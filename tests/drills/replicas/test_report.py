"""The figures of `make replicas`, checked by hand."""

import pytest

from tests.drills.replicas.report import Ratio
from tests.drills.replicas.throughput import Sample


def sample(replicas: int, rate: float, **cpu_s: float) -> Sample:
    """A sample of 10 s."""
    compared = rate * 10
    spent = dict.fromkeys(("replica1", "replica2", "generator", "haproxy", "redis", "judges"), 0.0)
    spent |= cpu_s
    ours = spent["replica1"] + spent["replica2"]
    return Sample(replicas, "direct", rate, spent, 10.0, 0.5, 1000 * ours / compared)


def test_a_ratio_is_the_median_of_the_turns_and_cpu_seconds_are_those_of_1000_comparisons() -> None:
    # One: 10,000 comparisons for 10 CPU seconds, 1 s for 1,000. Two: 18,000 for 19.8 s in the
    # replicas, 1.1 s for 1,000, and 1.8 s elsewhere, 0.1 s.
    one = sample(1, 1000, replica1=10.0)
    two = sample(2, 1800, replica1=9.9, replica2=9.9, generator=1.2, haproxy=0.6)
    # In the other turns both rates are higher or lower by the same factor.
    samples = [one, two]
    for factor in (0.5, 2.0):
        samples += [
            each._replace(rate=each.rate * factor, seconds=each.seconds / factor)
            for each in (one, two)
        ]
    found = Ratio.of(samples, "direct")
    assert (found.one, found.two, found.ratio) == (1000, 1800, 1.8)
    assert (found.lowest, found.highest) == (1.8, 1.8)
    assert found.alone_per_1000_s == pytest.approx(1.0)
    assert found.beside_per_1000_s == pytest.approx(1.1)
    assert found.rest_per_1000_s == pytest.approx(0.1)
    # 1.2 of 21.6.
    assert found.generator_share == pytest.approx(1 / 18)
    # 2 / 1.2 thousand a second on two cores, over 1 / 1.
    assert found.cpu_allows == pytest.approx(2 / 1.2)
    assert found.others_cores == 0.5
