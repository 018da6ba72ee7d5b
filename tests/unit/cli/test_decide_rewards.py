"""`scope-judge decide` on the results of a reward model, whose probabilities have a temperature."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.preference import LN2
from app.files.writing import replace_file
from tests.serving import application_of_scorer
from tests.unit.cli.listening import listening
from tests.unit.cli.test_decide import rows_of, run
from tests.unit.service.scoring.number_model import NumberModel, scorer_of


def pairs(n: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(8)
    rows = []
    for i in range(n):
        gap = round(rng.gauss(0, 30), 2) if i else 0.0
        right = rng.random() < 0.55 + min(0.45, abs(gap) / 40)
        rows.append(
            {
                "question": f"Question {i}?",
                "response_a": str(gap),
                "response_b": f"none of {i}",
                "label": "A" if (gap > 0) == right else "B",
            }
        )
    return rows


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    scorer = asyncio.run(scorer_of(NumberModel()))
    with listening(application_of_scorer(scorer)) as url:
        httpx.post(f"{url}/calibrate", json={"examples": pairs()}).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def folder(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs, their results with and without a temperature, and the exported set."""
    folder = tmp_path_factory.mktemp("decide")
    replace_file(folder / "pairs.jsonl", pairs())
    for name, criterion in (("scaled", ["--alpha", "0.1"]), ("raw", ["--no-alpha"])):
        out = folder / f"{name}.jsonl"
        judged = run("judge", folder / "pairs.jsonl", *criterion, "--out", out, "--url", url)
        assert judged.exit_code == 0, judged.output
    export = run("sets", "export", "default", "--out", folder / "set.jsonl", "--url", url)
    assert export.exit_code == 0, export.output
    return folder


def decided(name: str, *arguments: str | Path, folder: Path, out: Path) -> list[dict[str, Any]]:
    result = run("decide", folder / f"{name}.jsonl", *arguments, "--out", out)
    assert result.exit_code == 0, result.output
    return [row["judgment"] for row in rows_of(out)]


def test_results_at_another_temperature_are_decided_as_if_judged_anew(
    url: str, folder: Path, tmp_path: Path
) -> None:
    expected = [row["judgment"] for row in rows_of(folder / "scaled.jsonl")]
    (temperature,) = {each["temperature"] for each in expected}
    assert temperature > 1.0
    for number, source in enumerate((("--url", url), ("--labels", str(folder / "set.jsonl")))):
        out = tmp_path / f"{number}.jsonl"
        found = decided("raw", "--alpha", "0.1", *source, folder=folder, out=out)
        for new, old in zip(found, expected, strict=True):
            same = ("verdict", "preferred", "reason", "temperature", "orders", "label_mass")
            assert {name: new[name] for name in same} == {name: old[name] for name in same}
            assert new["p_bar"] == pytest.approx(old["p_bar"], abs=1e-9)
            assert 0.0 <= new["uncertainty"] <= LN2
    assert {each["verdict"] for each in expected} == {"A", "B", "abstain"}


def test_results_without_an_alpha_lose_the_temperature(folder: Path, tmp_path: Path) -> None:
    expected = [row["judgment"] for row in rows_of(folder / "raw.jsonl")]
    found = decided("scaled", "--no-alpha", folder=folder, out=tmp_path / "out.jsonl")
    assert {each["temperature"] for each in found} == {1.0}
    for new, old in zip(found, expected, strict=True):
        assert new["p_bar"] == pytest.approx(old["p_bar"], abs=1e-6)


def test_labelled_results_of_two_temperatures_are_refused(folder: Path, tmp_path: Path) -> None:
    both, (first, *rest) = tmp_path / "both.jsonl", rows_of(folder / "scaled.jsonl")
    other = {**first, "judgment": {**first["judgment"], "temperature": 1.0}}
    replace_file(both, [other, *rest])
    result = run("decide", both, "--alpha", "0.1", "--labels", both, "--out", tmp_path / "o.jsonl")
    assert result.exit_code != 0
    assert "different temperatures" in result.output
