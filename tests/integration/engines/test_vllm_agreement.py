"""The service on real vLLM agrees with a float32 transformers pass of the same weights."""

import itertools
from typing import Any

import numpy as np
import pytest

from app.core.comparison import Comparison
from app.demo.pairs import demo_sets
from app.judges.prompts import PromptTemplate
from app.settings import DEMO_FOLDER
from tests.integration.processes.server import Server
from tests.transformers_reference import Reference

pytestmark = pytest.mark.vllm

COMPARISONS = 100


def logit(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))


def reference_gaps(comparisons: list[Comparison]) -> list[tuple[float, float]]:
    """Logit of response_a minus that of response_b in both orders, one prompt at a time."""
    template = PromptTemplate()
    prompts = [prompt for one in comparisons for prompt in template.both_orders(one)]
    found = Reference(str(DEMO_FOLDER / "model"), prompts[0])(prompts)
    gaps = [each.a - each.b for each in found]
    return [(a, -b) for a, b in zip(gaps[::2], gaps[1::2], strict=True)]


def test_the_service_scores_as_a_float32_forward_pass_does(demo_server: Server) -> None:
    pairs = list(itertools.islice(demo_sets().fresh, COMPARISONS))
    body: dict[str, Any] = {
        "alpha": None,
        "comparisons": [
            {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
            for p in pairs
        ],
    }
    results = demo_server.client.post("/judge/batch", json=body).json()["results"]
    served = np.array([(logit(r["p_fwd"]), logit(r["p_rev"])) for r in results])
    expected = np.array(
        reference_gaps([Comparison.of(p.question, p.response_a, p.response_b) for p in pairs])
    )
    # A probability close to 1 loses digits of its gap in JSON: up to a gap of 29, the error is
    # below 1e-3.
    assert np.abs(expected).max() < 29
    residual = served - expected
    print(f"gaps differ by at most {np.abs(residual).max():.1e}, on average {residual.mean():.1e}")
    assert np.abs(residual).max() <= 1e-3
    assert abs(residual.mean()) <= 1e-4
    # The judge distinguishes the comparisons.
    assert expected.std() > 0.5
