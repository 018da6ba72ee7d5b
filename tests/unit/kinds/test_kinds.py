"""Each kind of judge on each path: what its answers say, what they cost, and its errors."""

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.unit.kinds.scenes import KINDS, UNREADABLE, Scene, pair, scene_of

pytestmark = pytest.mark.usefixtures("undrawn_figures")

FREE = {"alpha": None}
EXAMPLES = [{**pair(i), "label": "AB"[i % 2]} for i in range(40)]


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scene_of(KINDS[request.param]) as running:
        yield running


def check_judgment(scene: Scene, judged: dict[str, Any], *, temperature: float | None) -> None:
    """Checks the fields of a judgment that depend on the kind."""
    kind = scene.kind
    assert (judged["orders"], judged["judge"]) == (kind.orders, "the-judge")
    assert judged["label_mass"] == (kind.label_mass and pytest.approx(kind.label_mass, abs=1e-6))
    assert judged["temperature"] == temperature
    assert (judged["p_fwd"] == judged["p_rev"]) == (kind.orders == 1)
    assert judged["preferred"] == ("A" if judged["p_bar"] > 0.5 else "B")


def unscaled(scene: Scene) -> float | None:
    """The temperature of a judgment without a calibration set."""
    return 1.0 if scene.kind.fits_temperature else None


async def test_judge(scene: Scene) -> None:
    async with scene.service() as service:
        info = (await service.get("/info")).json()
        assert (info["kind"], info["model"]) == (scene.kind.kind, "the-judge")
        assert (info["decision_server"] is None) == (scene.kind.kind != "decision server")
        judged = (await service.post("/judge", json={**pair(0), **FREE})).json()
        check_judgment(scene, judged, temperature=unscaled(scene))
        assert judged["usage"]["engine_prompts"] == 2
        assert scene.texts in (2, scene.kind.texts_of_group // 3)
        assert scene.requests == scene.kind.requests
        swapped = {**pair(0), "response_a": "second answer 0", "response_b": "first answer 0"}
        other = (await service.post("/judge", json={**swapped, **FREE})).json()
        assert other["p_bar"] == pytest.approx(1.0 - judged["p_bar"], abs=1e-12)
        failed = await service.post("/judge", json={**pair(1, bad=True), **FREE})
        assert (failed.status_code, failed.json()["code"]) == (502, "judgment_failed")
        assert "verdict" not in failed.json()
        assert UNREADABLE not in failed.text
        assert (await service.get("/readyz")).status_code == 200


async def test_judge_batch(scene: Scene) -> None:
    async with scene.service() as service:
        batch = {"comparisons": [pair(0), pair(1, bad=True), pair(2)], **FREE}
        first, failed, third = (await service.post("/judge/batch", json=batch)).json()["results"]
        for judged in (first, third):
            check_judgment(scene, judged, temperature=unscaled(scene))
        assert failed["error"]["code"] == "judgment_failed"
        assert "verdict" not in failed
        alone = (await service.post("/judge", json={**pair(2), **FREE})).json()
        assert alone["p_bar"] == third["p_bar"]


async def test_calibrate(scene: Scene) -> None:
    async with scene.service() as service:
        examples = [*EXAMPLES, {**pair(40, bad=True), "label": "A"}]
        added = (await service.post("/calibrate", json={"examples": examples})).json()
        assert (added["added"], added["failed"], added["n"]) == (40, 1, 40)
        assert added["errors"][0]["error"]["code"] == "judgment_failed"
        assert added["usage"]["engine_prompts"] == 2 * 41
        detail = (await service.get("/calibrations/default")).json()
        assert (detail["temperature"] is not None) == scene.kind.fits_temperature
        assert (detail["position_flips"] is None) == (scene.kind.orders == 1)
        assert (detail["mean_label_mass"] is None) == (scene.kind.label_mass is None)
        scene.forget()
        judged = (await service.post("/judge", json={**pair(50), "alpha": 0.2})).json()
        check_judgment(scene, judged, temperature=detail["temperature"])
        assert judged["calibration"]["n"] == 40
        assert scene.requests == scene.kind.requests


async def test_rewards(scene: Scene) -> None:
    async with scene.service() as service:
        group: dict[str, Any] = {"question": "Which?", "responses": ["one", "two", "three"], **FREE}
        answer = (await service.post("/rewards/group", json=group)).json()
        assert answer["compared"] == [2, 2, 2]
        assert answer["errors"] == []
        assert scene.texts == scene.kind.texts_of_group
        group["responses"][2] = UNREADABLE
        answer = (await service.post("/rewards/group", json=group)).json()
        # The two comparisons with the unreadable response are no reward of anyone.
        assert answer["rewards"][2] is None
        assert [error["error"]["code"] for error in answer["errors"]] == ["judgment_failed"] * 2
        assert sorted(answer["rewards"][:2]) == [-1.0, 1.0]


async def test_audits(scene: Scene) -> None:
    async with scene.service(audit_rate=1.0) as service:
        await service.post("/calibrate", json={"examples": EXAMPLES})
        asked = [pair(i, bad=i == 60) for i in range(50, 62)]
        batch = (await service.post("/judge/batch", json={"comparisons": asked})).json()
        drawn = [one["audit"]["id"] for one in batch["results"] if "error" not in one]
        assert len(drawn) == 11
        labels = [{"id": each, "label": "A"} for each in drawn]
        sent = (await service.post("/audits/labels", json={"labels": labels})).json()
        assert sent["labelled"] == 11
        audits = (await service.get("/audits?status=labelled")).json()["audits"]
        assert len(audits) == 11
        drift = (await service.get("/calibrations/default/monitor")).json()["drift"]
        assert (drift["position_gap"] is None) == (scene.kind.orders == 1)
        assert (drift["label_mass"] is None) == (scene.kind.label_mass is None)
        absorbed = await service.post("/calibrations/default/absorb", json={})
        assert absorbed.json()["n"] == 51, absorbed.text


def run(scene: Scene, *arguments: str | Path) -> Result:
    environment = {**scene.environment, "COLUMNS": "200"}
    return CliRunner().invoke(app, [*map(str, arguments)], env=environment)


def labeled_file(folder: Path) -> Path:
    """40 labeled pairs, of which one cannot be judged."""
    rows = [{**row, "id": str(i)} for i, row in enumerate(EXAMPLES)]
    rows[7] = {**rows[7], **pair(7, bad=True)}
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_evaluate(scene: Scene, tmp_path: Path) -> None:
    file, out = labeled_file(tmp_path), tmp_path / "out"
    arguments = ("evaluate", file, "--judge", "the-judge", "--splits", "5", "--out", out)
    result = run(scene, *arguments)
    assert result.exit_code == 0, result.output
    (dataset,) = json.loads((out / "results.json").read_text())["datasets"]
    assert [method["method"] for method in dataset["methods"]] == list(scene.kind.methods)
    bpe = dataset["methods"][-1]
    assert (bpe["n"], bpe["failed"]) == (39, 1)
    lines = [json.loads(line) for line in (out / "judgments.jsonl").read_text().splitlines()]
    scored = [line for line in lines if "gap_fwd" in line]
    assert len(scored) == 39
    assert all(math.isfinite(line["gap_fwd"]) for line in scored)
    assert {line.get("orders", 2) for line in scored} == {scene.kind.orders}
    assert {"gap_rev" in line for line in scored} == {scene.kind.orders == 2}
    assert {"label_mass" in line for line in scored} == {scene.kind.label_mass is not None}
    # A run that is repeated asks only what failed.
    scene.forget()
    assert run(scene, *arguments, "--methods", "bpe").exit_code == 0
    again = [text for text in scene.readable if "second answer" in text]
    assert again
    assert all("second answer 7" in text for text in again)
    assert len((out / "judgments.jsonl").read_text().splitlines()) == len(lines) + 1
    # A method that it cannot do is refused before anything is judged.
    scene.forget()
    refused = run(scene, *arguments, "--methods", "self_consistency,bpe")
    if scene.kind.kind != "chat model":
        assert refused.exit_code == 1
        said = " ".join(refused.output.split())
        assert f"the-judge is a {scene.kind.kind}, which only knows" in said
        possible = ("--methods", ",".join(scene.kind.methods))
        assert " ".join(possible) in said
        assert scene.requests == 0
        assert run(scene, *arguments, *possible).exit_code == 0


def curve_of_evaluated(scene: Scene, file: Path, out: Path) -> str:
    """The output of `curve` for the judgments of `evaluate`."""
    judged = run(scene, "evaluate", file, "--judge", "the-judge", "--splits", "5", "--out", out)
    assert judged.exit_code == 0, judged.output
    shown = run(scene, "curve", out / "judgments.jsonl")
    assert shown.exit_code == 0, shown.output
    return str(shown.output)


async def calibrated(scene: Scene) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Labeled pairs on which the judge is mostly right, and a service's set of them."""
    async with scene.service() as service:
        asked = {"comparisons": [pair(i) for i in range(40)], **FREE}
        judged = (await service.post("/judge/batch", json=asked)).json()["results"]
        # The least certain verdicts are wrong.
        wrong = sorted(range(40), key=lambda i: -judged[i]["uncertainty"])[:6]
        rows = [
            {**pair(i), "label": "BA"[(one["preferred"] == "A") ^ (i in wrong)]}
            for i, one in enumerate(judged)
        ]
        await service.post("/calibrate", json={"examples": rows})
        detail = (await service.get("/calibrations/default")).json()
        return rows, detail


def test_curve_shows_the_thresholds_of_calibrate(scene: Scene, tmp_path: Path) -> None:
    rows, detail = asyncio.run(calibrated(scene))
    assert detail["n"] == 40
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = curve_of_evaluated(scene, file, tmp_path / "out")
    assert ("position flips" in shown) == (scene.kind.orders == 2)
    thresholds = [row["threshold"] for row in detail["thresholds"] if row["feasible"]]
    assert len(thresholds) >= 5
    assert all(f"{threshold:.6f}" in shown for threshold in thresholds)


def test_noise_check(scene: Scene) -> None:
    result = run(scene, "noise-check")
    told = " ".join(result.stderr.split())
    assert "gaps of 32 pairs differ by at most 0, " in told
    assert "0 of 32 pairs get another verdict" in told
    assert f"{scene.kind.distinct} of 100 prompts have a unique score" in told
    assert "warning" not in told
    assert result.exit_code == 0
