"""A cascade of two processes, planned by the command, whose large judge is killed under load."""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import app
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, wait_until

SCRIPTED = {"SCOPE_ENGINE": "scripted"}
SMALL, LARGE = "scripted (small)", "scripted (large)"
CRITERION = {"calibration": "mine", "alpha": 0.1, "guarantee": "pac"}


def _pairs(n: int, *, seed: int) -> list[dict[str, Any]]:
    """Labeled pairs whose stated quality is right more often the larger it is."""
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        quality = rng.uniform(-3, 3)
        wrong = rng.random() < 0.3 / (1 + 3 * abs(quality))
        rows.append(
            {
                "question": f"Question {seed}-{number}?",
                "response_a": f"quality={quality:.6f}",
                "response_b": "quality=0",
                "label": "A" if (quality > 0) != wrong else "B",
            }
        )
    return rows


def _command(folder: Path, url: str, rows: list[dict[str, Any]], *words: str) -> str:
    file = folder / f"{words[0]}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = CliRunner().invoke(app, [*words, str(file), "--name", "mine", "--url", url])
    assert done.exit_code == 0, done.output
    return done.output


def _judged(server: Server, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pairs = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    response = server.client.post("/judge/batch", json={"comparisons": pairs, **CRITERION})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def test_the_large_judge_is_killed_restarted_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The journal of calibrate is in the working directory.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large").mkdir()
    fresh = _pairs(300, seed=3)
    with Server(tmp_path / "large", {**SCRIPTED, "SCOPE_STORE_URL": "memory://"}) as large:
        url = large.url
        settings = {
            **SCRIPTED,
            "SCOPE_ESCALATE_URL": url,
            "SCOPE_STORE_URL": f"sqlite:///{tmp_path}/sets.db",
        }
        with Server(tmp_path, settings) as small:
            own = small.url
            said = _command(tmp_path, own, _pairs(1000, seed=1), "cascade", "plan")
            assert "r = 0.8" in said
            assert "version 1" in said
            _command(tmp_path, own, _pairs(600, seed=2), "calibrate")
            right = _judged(small, fresh)
            assert {each["decided_by"] for each in right} == {LARGE, SMALL}

            seen: list[tuple[int, dict[str, Any]]] = []
            stop = threading.Event()

            def load() -> None:
                place = 0
                while not stop.is_set():
                    (now,) = _judged(small, [fresh[place % 300]])
                    seen.append((place % 300, now))
                    place += 1

            loading = threading.Thread(target=load)
            loading.start()
            wait_until(lambda: len(seen) > 5)
            large.kill()
            wait_until(lambda: "escalation_unavailable" in {now["reason"] for _, now in seen})
            large.start()
            wait_until(lambda: _judged(small, fresh) == right)
            stop.set()
            loading.join(PATIENCE_S)
            for place, now in seen:
                if now["reason"] == "escalation_unavailable":
                    assert right[place]["decided_by"] == LARGE
                else:
                    assert now == right[place]

            # Another model behind the same address.
            large.kill()
            large.environment["SCOPE_PREFILL"] = "[["
            large.start()
            time.sleep(2.5)
            for now, then in zip(_judged(small, fresh), right, strict=True):
                away = now["reason"] == "escalation_unavailable"
                assert now == then if then["decided_by"] == SMALL else away
            small.kill()
            small.start()
            answer = small.client.post(
                "/judge", json={**CRITERION, "question": "?", "response_a": "x", "response_b": "y"}
            )
            # A restart is a cascade with the other model, which the set is not for.
            assert (answer.status_code, answer.json()["code"]) == (409, "judge_mismatch")
