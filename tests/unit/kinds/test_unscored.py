"""A judge that gives a comparison no score: the service abstains at every door."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.core.comparison import Comparison
from app.core.fingerprint import JudgeIdentity
from app.core.preference import NoScore, Score
from app.judges.scorer import ScoreError
from app.stores.memory import MemoryStore
from tests.serving import application_of_scorer, client_of_scorer
from tests.unit.cli.listening import listening

REASON = "thought_unfinished"
ENDLESS = "endless"
NUMBERS = ("p_fwd", "p_rev", "p_bar", "uncertainty", "confidence", "risk_level", "label_mass")


class HaltingScorer:
    """Prefers the longer response, and gives no score where a response is endless."""

    identity = JudgeIdentity(
        name="halting",
        inputs={"kind": "halting"},
        described={"model": "halting"},
        max_prompt_tokens=1000,
    )

    def __init__(self) -> None:
        self.asked = 0

    async def score(self, comparisons: Sequence[Comparison]) -> list[Score | NoScore | ScoreError]:
        self.asked += len(comparisons)
        return [self._score(comparison) for comparison in comparisons]

    def _score(self, comparison: Comparison) -> Score | NoScore:
        (a,), (b,) = comparison.response_a, comparison.response_b
        if ENDLESS in a + b:
            return NoScore(reason="thought_unfinished")
        gap = (len(a) - len(b)) / 2
        return Score(gap_fwd=gap, gap_rev=gap, label_mass=0.9)

    def weakness(self, score: Score) -> str | None:
        return None

    async def lost(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        pass


def pair(number: int, *, endless: bool = False) -> dict[str, Any]:
    a = ENDLESS if endless else "x" * (6 + number % 9)
    return {"question": f"Question {number}?", "response_a": a, "response_b": "y"}


# A quarter of the pairs has no score.
EXAMPLES = [{**pair(i, endless=i % 4 == 0), "label": "A"} for i in range(80)]


@pytest.fixture
async def service() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of_scorer(HaltingScorer(), audit_rate=1.0) as client:
        await client.post("/calibrate", json={"examples": EXAMPLES})
        yield client


async def judged(service: httpx.AsyncClient, number: int, **more: Any) -> dict[str, Any]:
    answer = await service.post("/judge", json={**pair(number, endless=True), **more})
    assert answer.status_code == 200
    return dict(answer.json())


async def test_it_abstains_without_a_number_under_every_criterion(
    service: httpx.AsyncClient,
) -> None:
    for more in ({}, {"alpha": None}, {"alpha": 0.9}, {"alpha": 0.2, "guarantee": "pac"}):
        found = await judged(service, 100, **more)
        assert (found["verdict"], found["preferred"], found["reason"]) == ("abstain", None, REASON)
        assert [found[name] for name in NUMBERS] == [None] * len(NUMBERS)
        assert "did not end" in found["words"]
        # Nobody is asked to label what no alpha accepts.
        assert found["audit"] is None
    batch = {"comparisons": [pair(1), pair(2, endless=True)]}
    results = (await service.post("/judge/batch", json=batch)).json()["results"]
    assert [each["reason"] for each in results] == [None, REASON]
    metrics = (await service.get("/metrics")).text
    assert f'scope_judgments_total{{reason="{REASON}",verdict="abstain"}} 5.0' in metrics


async def test_it_is_no_reward(service: httpx.AsyncClient) -> None:
    group = {"question": "Which?", "responses": ["x" * 20, "y", ENDLESS], "reward": "soft"}
    answer = (await service.post("/rewards/group", json=group)).json()
    assert (answer["accepted"], answer["compared"]) == ([1, 1, 0], [2, 2, 2])
    assert answer["rewards"][2] is None
    assert (answer["reasons"][2], answer["errors"]) == ("abstained", [])


async def test_a_decision_is_abstain_as_or_an_error(service: httpx.AsyncClient) -> None:
    criteria = {"one": ENDLESS, "two": "y"}
    question = {"type": "choice", "instructions": "Which?", "criteria": criteria}
    asked = {"model": "any", "state": "A state.", "questions": {"q": question}}
    answer = await service.post("/v1/systemone", json=asked)
    assert (answer.status_code, answer.json()["code"]) == (502, "judgment_failed")
    assert "abstain_as" in answer.json()["detail"]
    answer = await service.post("/v1/systemone?abstain_as=neither", json=asked)
    found = answer.json()["answers"]["q"]
    assert (found["choice"], found["confidence"]) == ("neither", 0.0)
    assert found["probabilities"] == {"one": 0.0, "two": 0.0}


async def test_a_set_shows_such_pairs_and_its_thresholds_leave_them_out(
    service: httpx.AsyncClient,
) -> None:
    found = (await service.get("/calibrations/default")).json()
    assert (found["n"], found["labelled"], found["unscored"], found["off_task"]) == (80, 60, 20, 0)
    assert (found["accuracy"], found["position_flips"]) == (1.0, 0.0)
    assert found["mean_label_mass"] == pytest.approx(0.9)
    # Coverage is a share of all pairs.
    rows = [row for row in found["thresholds"] if row["feasible"]]
    assert {row["guarantee"] for row in rows} == {"marginal", "pac"}
    assert max(row["coverage"] for row in rows) == 0.75
    assert found["curve"][-1]["coverage"] == 0.75
    async with client_of_scorer(HaltingScorer()) as other:
        finished = [each for each in EXAMPLES if each["response_a"] != ENDLESS]
        await other.post("/calibrate", json={"examples": finished})
        alone = (await other.get("/calibrations/default")).json()
    assert [row["threshold"] for row in found["thresholds"]] == [
        row["threshold"] for row in alone["thresholds"]
    ]
    assert [row["empirical_risk"] for row in found["thresholds"]] == [
        row["empirical_risk"] for row in alone["thresholds"]
    ]
    monitor = await service.get("/calibrations/default/monitor")
    assert monitor.status_code == 200


async def test_a_set_of_such_pairs_moves_to_another_service(service: httpx.AsyncClient) -> None:
    page = (await service.get("/calibrations/default/examples")).json()
    missing = [row for row in page["examples"] if row["gap_fwd"] is None]
    assert len(missing) == 20
    assert {(row["gap_rev"], row["label_mass"]) for row in missing} == {(None, None)}
    body = {"fingerprint": page["fingerprint"], "examples": page["examples"]}
    moved = await service.post("/calibrations/copy/examples", json=body)
    assert moved.status_code == 200, moved.text
    shown = [(await service.get(f"/calibrations/{name}")).json() for name in ("default", "copy")]
    assert shown[0]["thresholds"] == shown[1]["thresholds"]
    half = [{**missing[0], "gap_rev": 1.0}]
    refused = await service.post("/calibrations/copy/examples", json={**body, "examples": half})
    assert refused.status_code == 422


async def test_a_pool_asks_nobody_to_label_such_pairs(service: httpx.AsyncClient) -> None:
    pairs = [{k: v for k, v in each.items() if k != "label"} for each in EXAMPLES]
    await service.post("/calibrations/pool/pool", json={"comparisons": pairs})
    found = (await service.get("/calibrations/pool")).json()
    assert (found["n"], found["unlabelled"], found["unscored"]) == (80, 60, 20)
    await service.post("/calibrate", json={"examples": EXAMPLES[1::4], "calibration": "pool"})
    await service.post("/calibrate", json={"examples": EXAMPLES[2::4], "calibration": "pool"})
    await service.post("/calibrate", json={"examples": EXAMPLES[3::4], "calibration": "pool"})
    found = (await service.get("/calibrations/pool")).json()
    assert (found["labelled"], found["unlabelled"], found["accuracy"]) == (60, 0, 1.0)


async def test_kept_scores_give_the_same_answer() -> None:
    scorer = HaltingScorer()
    async with client_of_scorer(scorer, MemoryStore(), score_cache=60) as service:
        for order in ((pair(1, endless=True),) * 2, (pair(1, endless=True),)):
            for each in order:
                found = (await service.post("/judge", json={**each, "alpha": None})).json()
                assert found["reason"] == REASON
        swapped = {"question": "Question 1?", "response_a": "y", "response_b": ENDLESS}
        found = (await service.post("/judge", json={**swapped, "alpha": None})).json()
        assert found["reason"] == REASON
    assert scorer.asked == 1


@pytest.fixture
def url() -> Iterator[str]:
    with listening(application_of_scorer(HaltingScorer())) as url:
        httpx.post(f"{url}/calibrate", json={"examples": EXAMPLES}).raise_for_status()
        yield url


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def written(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_files_have_it_as_an_abstention(url: str, tmp_path: Path) -> None:
    rows = [{**pair(i, endless=i % 4 == 0), "label": "A", "id": i} for i in range(100, 140)]
    file, out = written(tmp_path / "pairs.jsonl", rows), tmp_path / "out.jsonl"
    said = run("judge", file, "--out", out, "--url", url)
    assert "abstained, 10: the judge's thought did not end" in said
    results = [json.loads(line)["judgment"] for line in out.read_text().splitlines()]
    assert [each["reason"] for each in results[::4]] == [REASON] * 10
    assert {each["p_bar"] for each in results[::4]} == {None}
    # A missing answer is never read as one half.
    assert "30 usable" in run("curve", out)
    dpo = [
        {"prompt": row["question"], "chosen": row["response_a"], "rejected": row["response_b"]}
        for row in rows
    ]
    kept = tmp_path / "kept.jsonl"
    said = run("filter", written(tmp_path / "dpo.jsonl", dpo), "--out", kept, "--url", url)
    assert "kept 30, dropped 10" in said
