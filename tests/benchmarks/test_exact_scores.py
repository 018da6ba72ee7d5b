"""The simulation behind the exact label scores: hardware rounding, and its cost in coverage."""

import numpy as np
import pytest

from tests.benchmarks.exact_scores import coverages, in_bfloat16


def test_rounding_is_to_the_nearest_bfloat16_and_ties_go_to_even() -> None:
    # Between 16 and 32 bfloat16 has steps of 1/8: 25 = 200/8, 25.125 = 201/8.
    values = np.array([25.0, 25.06, 25.0625, 25.07, 25.1875, -25.07, 0.0])
    expected = [25.0, 25.0, 25.0, 25.125, 25.25, -25.125, 0.0]
    assert in_bfloat16(values).tolist() == expected


def test_rounding_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(1).normal(scale=30, size=10_000)
    expected = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(in_bfloat16(values), expected)


def test_ties_cost_a_middling_judge_coverage() -> None:
    exact, rounded = coverages(0.766, 0.711, seed=1, calibrations=40)
    assert 0.2 < rounded < exact < 0.5
