"""A cascade over HTTP: a small service that asks a large one, and all that can go wrong."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.core.errors import StartupError
from app.judges.cascade import LargeJudge
from app.judges.engines.openai_servers import Endpoints
from app.stores.memory import MemoryStore
from tests.cascades import (
    Switch,
    calibrated,
    cascade_client,
    large_service,
    pairs,
    planned,
    unlabeled,
)

FRESH = pairs(400, seed=3)


@asynccontextmanager
async def _scene(**given: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Switch]]:
    """A calibrated cascade and the network to its large judge."""
    async with large_service() as large:
        network = Switch(large)
        async with cascade_client(network, **given) as client:
            await calibrated(client)
            network.asked = 0
            yield client, network


async def _judged(client: httpx.AsyncClient, rows: Any = FRESH, **given: Any) -> dict[str, Any]:
    body = {"comparisons": unlabeled(rows), "calibration": "mine", **given}
    response = await client.post("/judge/batch", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_each_pair_is_decided_by_the_first_judge_that_is_sure() -> None:
    async with _scene() as (client, network):
        answer = await _judged(client)
        detail = (await client.get("/calibrations/mine")).json()
        (row,) = (each for each in detail["thresholds"] if each["alpha"] == 0.1)
        choice = row["cascade"]
        assert choice["serves"] == "cascade"
        asked = 0
        for each, pair in zip(answer["results"], FRESH, strict=True):
            rungs = each["rungs"]
            asked += len(rungs) == 2
            small = rungs[0]
            assert (small["uncertainty"] <= small["threshold"]) == (len(rungs) == 1)
            last = rungs[-1]
            assert each["decided_by"] == last["judge"] == ("small", "large")[len(rungs) - 1]
            assert (each["p_bar"], each["uncertainty"], each["threshold"]) == (
                last["p_bar"],
                last["uncertainty"],
                last["threshold"],
            )
            accepted = last["uncertainty"] <= last["threshold"]
            preferred = "A" if last["p_bar"] > 0.5 else "B"
            assert each["verdict"] == (preferred if accepted else "abstain")
            mark = float(pair["response_a"].split(f"{last['judge']}=")[1].split()[0])
            assert preferred == ("A" if mark > 0 else "B")
        assert network.asked == asked
        assert answer["usage"] == {
            "engine_prompts": 2 * len(FRESH),
            "prompt_tokens": 0,
            "large": {"comparisons": asked, "engine_prompts": 2 * asked, "prompt_tokens": 0},
        }
        assert asked / len(FRESH) == pytest.approx(choice["escalated"], abs=0.08)
        accepted = [
            each["verdict"] == pair["label"]
            for each, pair in zip(answer["results"], FRESH, strict=True)
            if each["verdict"] != "abstain"
        ]
        assert 1 - sum(accepted) / len(accepted) <= 0.1


async def test_the_other_order_of_the_responses_gives_the_mirrored_answer() -> None:
    swapped = [
        {**row, "response_a": row["response_b"], "response_b": row["response_a"]} for row in FRESH
    ]
    mirrored = {"A": "B", "B": "A", "abstain": "abstain"}
    async with _scene(score_cache=60) as (client, network):
        there = (await _judged(client))["results"]
        asked = network.asked
        back = (await _judged(client, swapped))["results"]
        assert [each["verdict"] for each in back] == [mirrored[each["verdict"]] for each in there]
        assert [each["decided_by"] for each in back] == [each["decided_by"] for each in there]
        # Both judges' scores were kept.
        assert network.asked == asked
        assert all(each["cached"] for each in back)


async def test_without_an_alpha_the_large_judge_decides_everything() -> None:
    async with _scene() as (client, network):
        results = (await _judged(client, FRESH[:50], alpha=None))["results"]
        assert {each["decided_by"] for each in results} == {"large"}
        assert network.asked == 50


async def test_an_infeasible_alpha_costs_no_call_of_the_large_judge() -> None:
    async with _scene() as (client, network):
        results = (await _judged(client, FRESH[:50], alpha=0.001))["results"]
        assert {each["reason"] for each in results} == {"infeasible"}
        assert network.asked == 0


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        pytest.param(
            "/judge",
            {**unlabeled(FRESH)[0], "calibration": "mine", "guarantee": "marginal"},
            '"pac" or none',
            id="marginal",
        ),
        pytest.param(
            "/calibrate",
            {"calibration": "other", "examples": FRESH[:5]},
            "no plan yet",
            id="labels before a plan",
        ),
        pytest.param(
            "/calibrations/mine/pool",
            {"comparisons": unlabeled(FRESH)[:5]},
            "no pool",
            id="a pool",
        ),
        pytest.param(
            "/calibrations/mine/examples",
            {
                "fingerprint": None,
                "examples": [
                    {
                        "digest": "0" * 64,
                        "gap_fwd": 1.0,
                        "gap_rev": 1.0,
                        "label_mass": 0.9,
                        "label": "A",
                    }
                ],
            },
            "scores of both",
            id="the score of one judge",
        ),
    ],
)
async def test_what_a_cascade_refuses(path: str, body: dict[str, Any], words: str) -> None:
    async with _scene() as (client, _):
        if "fingerprint" in body:
            body = {**body, "fingerprint": (await client.get("/info")).json()["fingerprint"]}
        response = await client.post(path, json=body)
        assert (response.status_code, response.json()["code"]) == (409, "cascade_conflict")
        assert words in response.json()["detail"]


async def test_a_plan_is_made_once_and_before_the_labels() -> None:
    async with _scene() as (client, _):
        again = await planned(client)
        assert (again.status_code, again.json()["code"]) == (409, "cascade_conflict")
        other = await planned(client, "other", large="0" * 64)
        assert (other.status_code, other.json()["code"]) == (409, "judge_mismatch")
        seen = await planned(client, "other", large="0" * 64, dry_run=True)
        assert seen.json()["version"] is None
        few = await planned(client, "other", pairs=[])
        assert few.status_code == 422
        none = await planned(client, "other", share=0.0)
        assert (none.json()["share"], none.json()["escalated"]) == (0.0, 1.0)
        assert (await client.get("/calibrations/mine")).json()["cascade_share"] > 0
        (made, *_) = (await client.get("/calibrations/other/versions")).json()["versions"]
        empty = (await client.get("/calibrations/other")).json()
        assert not any(row["feasible"] for row in empty["thresholds"])
        body = {**unlabeled(FRESH)[0], "calibration": "other"}
        assert (await client.post("/judge", json=body)).json()["reason"] == "infeasible"
        assert (await client.get("/calibrations/other/monitor")).status_code == 200
        assert (made["action"], made["n"]) == ("plan", 0)


async def test_examples_move_to_another_set_with_the_scores_of_both_judges() -> None:
    async with _scene() as (client, _):
        assert (await planned(client, "other")).status_code == 200
        page = (await client.get("/calibrations/mine/examples")).json()
        body = {"fingerprint": page["fingerprint"], "examples": page["examples"]}
        report = await client.post("/calibrations/other/examples", json=body)
        assert report.status_code == 200, report.text
        mine = (await client.get("/calibrations/mine")).json()
        assert report.json()["thresholds"] == mine["thresholds"]


async def test_a_restart_reads_the_same_cascade_from_the_store() -> None:
    store = MemoryStore()
    async with _scene(store=store) as (client, network):
        before = await _judged(client)
        async with cascade_client(network, store) as restarted:
            assert await _judged(restarted) == before


@asynccontextmanager
async def _another_model() -> AsyncIterator[httpx.ASGITransport]:
    async with large_service("small") as other:
        yield other


def _reasons(answer: dict[str, Any]) -> Counter[str]:
    return Counter(
        "error" if each.get("error") else each["reason"] or each["decided_by"]
        for each in answer["results"]
    )


@pytest.mark.parametrize("fault", ["gone", "slow", "another model", 400, 200])
async def test_without_the_large_judge_what_it_alone_could_decide_is_an_abstention(
    fault: str | int,
) -> None:
    longest_s = 3.0 if fault == "slow" else 5.0
    async with _scene(longest_s=longest_s) as (client, network), _another_model() as other:
        right, healthy = await _judged(client), network.to
        if fault == "gone":
            network.to = None
        elif fault == "slow":
            network.delay_s = 6.0
        elif fault == "another model":
            network.to = other
        elif isinstance(fault, int):
            # 200 without scores is no answer either.
            network.statuses = [fault] * 10_000
        for _ in range(4):
            answer = await _judged(client)
            for now, then in zip(answer["results"], right["results"], strict=True):
                if then["decided_by"] == "small":
                    assert now == then
                    continue
                assert (now["verdict"], now["reason"]) == ("abstain", "escalation_unavailable")
                assert now["p_bar"] is now["preferred"] is now["decided_by"] is None
                assert now["rungs"] == then["rungs"][:1]
        escalated = [
            row
            for row, then in zip(FRESH, right["results"], strict=True)
            if then["decided_by"] == "large"
        ]
        body = {**unlabeled(escalated)[0], "calibration": "mine"}
        assert "cannot be asked now" in (await client.post("/judge", json=body)).json()["words"]
        # Sets are not changed by half: the service says that the judge is away.
        report = await client.post(
            "/calibrate", json={"calibration": "mine", "examples": pairs(5, seed=9)}
        )
        assert report.status_code == 503
        assert (await client.get("/readyz")).status_code == 200
        network.to, network.statuses, network.delay_s = healthy, [], 0.0
        for _ in range(100):
            if await _judged(client) == right:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("the large judge does not come back")


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        pytest.param(500, 1, id="a failure: only probes ask again"),
        pytest.param(400, 1, id="a refusal: only probes ask again"),
        pytest.param(200, 1, id="no scores: only probes ask again"),
        pytest.param(429, 20, id="overloaded: the next pair is sent"),
        pytest.param(503, 20, id="unavailable: the next pair is sent"),
    ],
)
async def test_what_is_sent_after_an_answer_without_scores(status: int, asked: int) -> None:
    async with _scene(probe_every_s=60.0) as (client, network):
        network.statuses = [status] * 20
        for row in FRESH[:100]:
            await _judged(client, [row])
        assert len(network.statuses) == 20 - asked


async def test_long_pairs_are_sent_one_by_one_and_one_that_is_too_long_fails_alone() -> None:
    texts = [text * 20_000 for text in ("abc ", "long ", "defg ")]
    pair = {"question": "Which?", "response_a": "b", "response_b": "c", "alpha": None}
    async with _scene() as (client, network):
        network.statuses, first = [413], network.requests
        body = {"comparisons": [{**pair, "question": text} for text in texts]}
        results = (await client.post("/judge/batch", json=body)).json()["results"]
        assert network.requests - first == len(texts)
        assert [each.get("error", {}).get("code") for each in results].count(None) == 2
        assert {"prompt_too_long"} == {e["error"]["code"] for e in results if "error" in e}


async def test_the_share_of_a_minute_is_bounded() -> None:
    async with _scene(most=0.25) as (client, network):
        reasons = _reasons(await _judged(client))
        assert network.asked == 100
        assert reasons["escalation_unavailable"] > 100
        assert reasons["small"] > 50
        metrics = (await client.get("/metrics")).text
        over = reasons["escalation_unavailable"]
        assert f'scope_escalations_total{{outcome="over_share"}} {over}.0' in metrics


async def test_audits_drift_and_the_monitor_work_and_absorb_is_refused() -> None:
    async with _scene(audit_rate=1.0) as (client, _):
        results = (await _judged(client))["results"]
        labels = [
            {"id": each["audit"]["id"], "label": row["label"]}
            for each, row in zip(results, FRESH, strict=True)
        ]
        marked = (await client.post("/audits/labels", json={"labels": labels})).json()
        assert marked["labelled"] == len(FRESH)
        monitor = (await client.get("/calibrations/mine/monitor")).json()
        (criterion,) = monitor["criteria"]
        decided = [
            (each["verdict"], row["label"])
            for each, row in zip(results, FRESH, strict=True)
            if each["verdict"] != "abstain"
        ]
        assert criterion["audited"] == len(decided)
        assert criterion["errors"] == sum(verdict != label for verdict, label in decided)
        streams = {name: each for name, each in monitor["drift"].items() if each is not None}
        assert set(streams) == {"uncertainty", "position_gap", "large_uncertainty"}
        assert not any(each["alarm"] for each in streams.values())
        refused = await client.post("/calibrations/mine/absorb", json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "cascade_conflict")
        assert "scope-judge calibrate FILE --name mine" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        pytest.param("ftp://large", None, "is not a URL", id="another scheme"),
        pytest.param("http://me:secret@large", None, "credentials", id="a password"),
        pytest.param("http://large", None, "cannot be reached", id="nothing listens"),
        pytest.param("http://large", 403, "refuses SCOPE_ESCALATE_API_KEY", id="a wrong key"),
        pytest.param("http://large", 404, "answers with status 404", id="another service"),
    ],
)
async def test_a_start_says_why_there_is_no_large_judge(
    url: str, status: int | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.judges.cascade._START_S", 0.0)
    network = Switch()
    if status is not None:
        network = Switch(httpx.ASGITransport(FastAPI()), statuses=[status])
    settings = ("SCOPE_ESCALATE_URL", "SCOPE_ESCALATE_API_KEY")

    async def start() -> None:
        endpoints = Endpoints(urls=(url,), settings=settings)
        await LargeJudge(endpoints, network).start()

    with pytest.raises(StartupError, match=words) as raised:
        await start()
    assert "secret" not in str(raised.value)
