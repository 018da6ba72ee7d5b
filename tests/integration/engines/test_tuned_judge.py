"""A real language model gives verdicts with the promised error on texts that it never read."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from scipy.stats import binom

from app.demo.pairs import Pair
from tests.demo_judge.measure import judge
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, VLLM_START_S
from tests.real_judge import UnavailableJudgeError
from tests.tuned_judge.checkpoint import PREFILL, tuned_judge
from tests.tuned_judge.sets import measured_pairs

pytestmark = [pytest.mark.vllm, pytest.mark.long]

ALPHA = 0.10
# Few pairs, because each takes up to half a second on two cores.
LABELLED, FRESH = 50, 30
# More errors than the test allows have this probability if each verdict is wrong with ALPHA: the
# test allows 5 of 18.
RARE = 0.01


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    try:
        checkpoint = tuned_judge()
    except UnavailableJudgeError as exc:
        pytest.skip(str(exc))
    folder: Path = tmp_path_factory.mktemp("tuned")
    settings = {
        "SCOPE_MODEL": str(checkpoint),
        "SCOPE_PREFILL": PREFILL,
        "SCOPE_STORE_URL": "memory://",
        "SCOPE_TIMEOUT_S": f"{PATIENCE_S:g}",
    }
    with Server(folder, settings, start_timeout_s=VLLM_START_S) as server:
        yield server.client


def unread_pairs() -> list[Pair]:
    """Pairs of held-out pages; every other one is of a family that was not trained on."""
    both = zip(measured_pairs("seen"), measured_pairs("unseen"), strict=False)
    return [pair for seen_and_unseen in both for pair in seen_and_unseen][: LABELLED + FRESH]


def test_verdicts_on_unread_texts_have_the_promised_error(client: httpx.Client) -> None:
    pairs = unread_pairs()
    examples = [
        {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
        | {"label": p.label}
        for p in pairs[:LABELLED]
    ]
    answer = client.post("/calibrate", json={"examples": examples})
    answer.raise_for_status()
    judged = judge(client, pairs[LABELLED:], alpha=ALPHA)
    labels = [pair.label for pair in pairs[LABELLED:]]
    given = [(each["verdict"], label) for each, label in zip(judged, labels, strict=True)]
    accepted = [each for each in given if each[0] != "abstain"]
    wrong = sum(verdict != label for verdict, label in accepted)
    print(f"{len(accepted)} verdicts of {len(judged)}, {wrong} wrong")
    assert all(each["label_mass"] > 0.5 for each in judged)
    # By the measured judgments 18 of these 30 are accepted, and 1 of the 18 is wrong.
    assert 12 <= len(accepted) < FRESH
    assert wrong <= binom.isf(RARE, len(accepted), ALPHA)
