"""Tests of /metrics after requests of every kind."""

import asyncio
import math
from collections.abc import Sequence

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.ports import CallTimes, LabelLogits, Prompt, PromptError
from app.stores.memory import MemoryStore
from tests.serving import client_of
from tests.unit.api.problems import comparison, examples

Metrics = dict[tuple[str, ...], float]


async def metrics_of(client: httpx.AsyncClient) -> Metrics:
    """All metrics: (name, label values in the order of the labels' names) -> value."""
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class SlowEngine(ScriptedEngine):
    """Reports fixed times for the stages of its calls."""

    async def label_logits(
        self, prompts: Sequence[Prompt], times: CallTimes | None = None
    ) -> list[LabelLogits | PromptError]:
        assert times is not None
        with times.rendering():
            await asyncio.sleep(0.02)
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(0.03)
        for extra in (0.0, 60.0):
            times.note_wait(asyncio.get_running_loop().time() - begun + extra)
        await asyncio.sleep(0.04)
        return await super().label_logits(prompts, times)


async def test_each_stage_of_a_judgment_is_timed_once() -> None:
    async with client_of(SlowEngine()) as client:
        assert (await client.post("/judge", json=comparison(alpha=None))).status_code == 200
        found = await metrics_of(client)
    sums = {
        stage: found["scope_stage_duration_seconds_sum", stage]
        for stage in ("queue", "render", "engine", "decide")
    }
    counts = [found["scope_stage_duration_seconds_count", stage] for stage in sums]
    assert counts == [1.0] * 4
    # The queue time of a call is the shortest wait of its prompts: then the model has begun.
    assert 0.03 <= sums["queue"] < 60.0
    assert sums["render"] >= 0.02
    assert sums["engine"] >= 0.04
    whole = found["scope_request_duration_seconds_sum", "/judge", "2xx"]
    assert sum(sums.values()) <= whole


async def test_uncertainty_position_gap_and_label_mass_are_distributions() -> None:
    # Both prompts prefer the response shown first: p_fwd = 1 - p_rev, so p_bar is 0.5.
    biased = ScriptedEngine(lambda prompt: logits_of_gap(2.0, label_mass=0.75))
    async with client_of(biased) as client:
        await client.post("/judge", json=comparison(alpha=None))
        found = await metrics_of(client)
    gap = 2 / (1 + math.exp(-2.0)) - 1
    assert found["scope_position_gap_sum",] == pytest.approx(gap)
    assert found["scope_label_mass_sum",] == pytest.approx(0.75)
    assert found["scope_uncertainty_nats_sum",] == pytest.approx(math.log(2))
    assert found["scope_order_disagreements_total",] == 1.0
    # The last bucket but one ends above ln 2, so no value is out of range.
    assert found["scope_uncertainty_nats_bucket", "0.6932"] == 1.0


async def test_requests_are_counted_by_their_declared_route() -> None:
    async with client_of() as client:
        await client.get("/calibrations/one-of-many")
        await client.get("/calibrations/another")
        await client.get("/no/such/place")
        await client.post("/judge", json=comparison(question=3))
        found = await metrics_of(client)
    counted = {key[1:]: n for key, n in found.items() if key[0].endswith("duration_seconds_count")}
    assert counted == {
        ("/calibrations/{name}", "4xx"): 2.0,
        ("none", "4xx"): 1.0,
        ("/judge", "4xx"): 1.0,
    }


async def test_a_calibration_is_shown_with_its_thresholds_until_it_is_deleted() -> None:
    store = MemoryStore()
    async with client_of(store=store) as first, client_of(store=store) as client:
        await first.post("/calibrate", json={"calibration": "mine", "examples": examples(40)})
        shown = (await first.get("/calibrations/mine")).json()
        # A replica that has not computed the thresholds yet.
        await client.post("/judge", json=comparison(calibration="mine"))
        found = await metrics_of(client)
        assert found["scope_calibration_examples", "mine"] == shown["n"]
        assert found["scope_calibration_version", "mine"] == 1.0
        assert found["scope_calibration_unconfirmed_seconds", "mine"] == 0.0
        assert found["scope_calibration_changed_timestamp_seconds", "mine"] > 1.7e9
        for row in shown["thresholds"]:
            place = (f"{row['alpha']:.2f}", "mine", row["guarantee"])
            assert found["scope_calibration_feasible", *place] == row["feasible"]
            threshold = found.get(("scope_calibration_threshold_nats", *place))
            assert threshold == row["threshold"]
        assert {row["feasible"] for row in shown["thresholds"]} == {True, False}
        await client.delete("/calibrations/mine")
        found = await metrics_of(client)
        assert not [key for key in found if "mine" in key]


async def test_limits_judge_and_process_are_shown() -> None:
    async with client_of(max_pending=17) as client:
        info = (await client.get("/info")).json()
        found = await metrics_of(client)
    assert found["scope_pending_comparisons_limit",] == 17.0
    labels = (info["commit"] or "", info["fingerprint"], info["judge"], info["version"])
    assert found["scope_judge_info", *labels] == 1.0
    assert found["process_resident_memory_bytes",] > 0


async def post_examples(client: httpx.AsyncClient, name: str, count: int = 1) -> None:
    body = {"calibration": name, "examples": examples(count)}
    (await client.post("/calibrate", json=body)).raise_for_status()


def shown_sets(found: Metrics) -> set[str]:
    return {key[1] for key in found if key[0] == "scope_calibration_version"}


async def test_at_most_a_hundred_sets_are_labels() -> None:
    async with client_of() as client:
        for number in range(101):
            await post_examples(client, f"set-{number:03}")
        found = await metrics_of(client)
    assert len(shown_sets(found)) == 100


async def test_drift_is_shown_in_the_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, place = "/calibrations/default/monitor", ("default", "uncertainty")
    async with client_of() as client:
        labeled = examples(100)
        await client.post("/calibrate", json={"examples": labeled})
        pairs = [{k: each[k] for k in each if k != "label"} for each in labeled]
        await client.post("/judge/batch", json={"comparisons": pairs * 2})
        await client.get(path)
        found = await metrics_of(client)
        assert found["scope_drift_alarm", *place] == 0.0
        assert 0.0 < found["scope_drift_evidence", *place] < 20.0

        unsure = comparison(response_a="quality=0.1", response_b="quality=0.0")
        hard = [{**unsure, "question": f"{i}?"} for i in range(200)]
        await client.post("/judge/batch", json={"comparisons": hard})
        told = (await client.get(path)).json()
        assert "; the traffic is unlike the labeled pairs since " in told["summary"]
        assert told["note"].startswith("judgments are unlike the labeled pairs")
        found = await metrics_of(client)
        assert found["scope_drift_alarm", *place] == 1.0
        assert found["scope_drift_evidence", *place] >= 20.0
        assert caplog.text.count("the evidence from the uncertainty of its judgments") == 1
        # A new version starts with empty statistics.
        await post_examples(client, "default", 101)
        assert ("scope_drift_alarm", *place) not in await metrics_of(client)
