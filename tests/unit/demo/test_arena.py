"""The battles of the demo arena follow the ratings that they are made of."""

import json
import math
from itertools import islice
from pathlib import Path

import pytest

from app.demo.arena import MODELS, SEED, STRENGTHS, battles, main
from app.files.battles import battle_shape

COUNT = 3000


def test_the_better_model_is_right_as_often_as_its_strength_says() -> None:
    right = dict.fromkeys(MODELS, 0.0)
    expected = dict.fromkeys(MODELS, 0.0)
    variance = dict.fromkeys(MODELS, 0.0)
    for each in islice(battles(1), COUNT):
        a, b = each.model_a, each.model_b
        chance = 1 / (1 + math.exp(STRENGTHS[MODELS.index(b)] - STRENGTHS[MODELS.index(a)]))
        right[a if each.winner == "model_a" else b] += 1
        expected[a] += chance
        expected[b] += 1 - chance
        for model in (a, b):
            variance[model] += chance * (1 - chance)
    for model in MODELS:
        assert abs(right[model] - expected[model]) < 4 * math.sqrt(variance[model]), model
    assert sum(STRENGTHS) == pytest.approx(0)


def test_the_file_is_read_by_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["arena", str(tmp_path / "battles.jsonl"), "--count", "50"])
    main()
    assert "50 battles of 12 models" in capsys.readouterr().out
    lines = (tmp_path / "battles.jsonl").read_text().splitlines()
    read = [json.loads(line) for line in lines]
    shape = battle_shape(read[0])
    found = [shape.battle(row) for row in read]
    assert [each.id for each in found] == [f"{SEED}-{i}" for i in range(1, 51)]
    assert {each.model_a for each in found} | {each.model_b for each in found} <= set(MODELS)
