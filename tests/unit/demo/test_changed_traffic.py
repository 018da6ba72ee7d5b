"""The story of changed traffic, with a scripted judge that guesses at sums and differences."""

import math
import random
import uuid
from collections.abc import Iterator
from functools import cache

import httpx
import pytest

from app.core.comparison import Comparison
from app.core.monitoring import alarm_delta
from app.demo.pairs import FAMILIES, Pair, demo_sets, pairs
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.judges.prompts import PromptTemplate
from app.ports import LabelLogits, Prompt
from app.stores.memory import MemoryStore
from tests.demo_judge import changed_traffic
from tests.demo_judge.changed_traffic import MOST, RATE, RENEWED, STEADY, Story, measure
from tests.unit.clients.adapters.service import served

HARD = ("sum", "difference")
# More than the story takes from each stream.
DISTINCT = 5000


def key(pair: Pair) -> tuple[str, ...]:
    return (pair.question, *sorted((pair.response_a, pair.response_b)))


def all_pairs() -> Iterator[Pair]:
    yield from demo_sets().calibrate
    for seed, families in ((1, tuple(FAMILIES)), (2, HARD)):
        seen: set[tuple[str, ...]] = set()
        for pair in pairs(seed, held_out=True, families=families):
            yield pair
            seen.add(key(pair))
            if len(seen) == DISTINCT:
                break


def gap_of(pair: Pair) -> float:
    """Logit of response_a minus that of response_b; a coin decides the side of a hard pair."""
    draw = random.Random(repr(key(pair)))
    size, chance = draw.uniform(0.0, 5.0), draw.random()
    is_right = chance < (0.5 if pair.family in HARD else 1.0 - 0.5 * math.exp(-size))
    if pair.family in HARD:
        size *= 0.25
    return size if is_right == (pair.label == "A") else -size


@cache
def gaps() -> dict[str, float]:
    """Logit of the response that a prompt shows first minus that of the other one."""
    found, template = {}, PromptTemplate()
    for pair in all_pairs():
        comparison = Comparison.of(pair.question, pair.response_a, pair.response_b)
        forward, reverse = template.both_orders(comparison)
        found[forward.user], found[reverse.user] = gap_of(pair), -gap_of(pair)
    return found


def script(prompt: Prompt) -> LabelLogits:
    return logits_of_gap(gaps()[prompt.user])


class KnownSecretStore(MemoryStore):
    """A store whose secret is not drawn: secret and ids of versions choose the audits."""

    async def secret(self) -> bytes:
        return bytes(32)


@pytest.fixture(scope="module", params=["report", "abstain"])
def told(request: pytest.FixtureRequest) -> Iterator[tuple[Story, httpx.Client]]:
    mode: str = request.param
    examples = [
        {"question": p.question, "response_a": p.response_a, "response_b": p.response_b}
        | {"label": p.label}
        for p in demo_sets().calibrate
    ]
    engine, store, bits = ScriptedEngine(script), KnownSecretStore(), random.Random(1)
    with (
        pytest.MonkeyPatch.context() as patch,
        served(engine, store, calibrated=False, audit_rate=RATE, on_alarm=mode) as url,
        httpx.Client(base_url=url, timeout=600) as client,
    ):
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=bits.getrandbits(128), version=4))
        client.post("/calibrate", json={"examples": examples}).raise_for_status()
        yield measure(client, mode), client


def test_each_phase_counts_its_judgments(told: tuple[Story, httpx.Client]) -> None:
    phases = told[0].phases
    assert [phase.name for phase in phases] == [
        "steady",
        "changed, before the alarm",
        "changed, after the alarm",
        "absorbed",
    ]
    steady, before, after, absorbed = phases
    assert (steady.judged, absorbed.judged) == (STEADY, RENEWED)
    assert before.judged == told[0].monitor_alarm
    assert all(0 <= each.wrong <= each.accepted <= each.judged for each in phases)
    until = STEADY + before.judged + after.judged
    assert [point.judged for point in told[0].points] == list(range(50, until + 1, 50))


def test_each_audit_is_labeled_and_labeled_correctly(told: tuple[Story, httpx.Client]) -> None:
    story, client = told
    audits: list[str] = []
    after: int | None = 0
    while after is not None:
        page = client.get("/audits", params={"after": after}).raise_for_status().json()
        audits += [each["status"] for each in page["audits"]]
        after = page["next_after"]
    assert set(audits) == {"labelled"}
    # A comparison that comes again is the same audit.
    assert len(audits) <= sum(phase.audited for phase in story.phases)
    described = client.get("/calibrations/default").raise_for_status().json()
    assert described["n"] == story.absorbed == story.audits
    # Two of three pairs are coin flips, and the judge is right on most of the others.
    assert 0.55 < described["accuracy"] < 0.75


def test_the_changed_traffic_rings_both_alarms_and_the_steady_one_none(
    told: tuple[Story, httpx.Client],
) -> None:
    story = told[0]
    assert story.drift_alarm is not None
    assert story.monitor_alarm is not None
    assert 0 < story.drift_alarm <= MOST
    assert 0 < story.monitor_alarm <= MOST
    assert max(point.monitor for point in story.points[: STEADY // 50]) < 1 / alarm_delta(1)
    assert story.labels_to_alarm is not None
    assert story.labels_after_change is not None
    assert 0 < story.labels_after_change < story.labels_to_alarm


def test_absorbed_audits_keep_the_promise_again(told: tuple[Story, httpx.Client]) -> None:
    steady, before, after, absorbed = told[0].phases
    suspends = told[0].on_alarm == "abstain"
    assert (after.suspended > 0) == (after.accepted == 0) == suspends
    assert steady.suspended == before.suspended == absorbed.suspended == 0
    assert before.wrong / before.accepted > changed_traffic.ALPHA
    for phase in (steady, absorbed):
        assert phase.accepted > 0
        assert phase.wrong / phase.accepted < 1.3 * changed_traffic.ALPHA
