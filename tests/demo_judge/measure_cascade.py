"""Measures a cascade on vLLM: the demo judge, before a scripted judge that knows the answers.

python -m tests.demo_judge.measure_cascade

The scripted judge stands for a large one: it is right on 95% of the pairs, and surer where it is
right. It answers at once, so only its calls count, not its seconds. The questions are those of the
demo judge without the family "alphabet", which has too few.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from app.demo.pairs import FAMILIES, Pair, pairs
from app.judges.engines.scripted import ScriptedEngine, logits_of_gap
from app.judges.prompts import PAPER_USER
from app.ports import LabelLogits, Prompt
from tests.integration.processes.server import SERVE, Server
from tests.serving import application_of
from tests.unit.cli.listening import listening

ALPHA = 0.1
PLANNED, LABELED, FRESH = 1000, 1000, 2000
_SEED = 11
_ACCURACY, _IN_REQUEST, _START_S = 0.95, 250, 600.0


def distinct() -> list[Pair]:
    """Pairs of different questions that the demo judge has not learned."""
    families = tuple(name for name in FAMILIES if name != "alphabet")
    found: dict[str, Pair] = {}
    for pair in pairs(_SEED, held_out=True, families=families):
        found.setdefault(pair.question, pair)
        if len(found) == PLANNED + LABELED + FRESH:
            break
    chosen = list(found.values())
    random.Random(_SEED).shuffle(chosen)
    return chosen


def large_judge(known: list[Pair]) -> ScriptedEngine:
    """A judge that is right on 95% of these pairs, and surer where it is right."""
    gaps: dict[str, float] = {}
    rng = random.Random(_SEED)
    for pair in known:
        right = rng.random() < _ACCURACY
        size = abs(rng.gauss(2.5 if right else 0.6, 0.8))
        gap = size if right == (pair.label == "A") else -size
        gaps[_user(pair.question, pair.response_a, pair.response_b)] = gap
        gaps[_user(pair.question, pair.response_b, pair.response_a)] = -gap

    def script(prompt: Prompt) -> LabelLogits:
        # A probe is no pair.
        return logits_of_gap(gaps.get(prompt.user, 1.0))

    return ScriptedEngine(script, judge="scripted-large")


def _user(question: str, a: str, b: str) -> str:
    return PAPER_USER.format(question=question, answer_a=a, answer_b=b)


def _fields(pair: Pair) -> dict[str, str]:
    return {
        "question": pair.question,
        "response_a": pair.response_a,
        "response_b": pair.response_b,
    }


def _posted(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def _calibrated(client: httpx.Client, labeled: list[Pair]) -> None:
    for start in range(0, len(labeled), _IN_REQUEST):
        part = labeled[start : start + _IN_REQUEST]
        examples = [{**_fields(pair), "label": pair.label} for pair in part]
        _posted(client, "/calibrate", {"calibration": "mine", "examples": examples})


def _measured(name: str, client: httpx.Client, fresh: list[Pair]) -> None:
    """Judges fresh pairs, and prints coverage, error, calls and seconds."""
    criterion = {"alpha": ALPHA, "guarantee": "pac", "calibration": "mine"}
    begun, right, large = time.perf_counter(), list[bool](), 0
    for start in range(0, len(fresh), _IN_REQUEST):
        part = fresh[start : start + _IN_REQUEST]
        body = {"comparisons": list(map(_fields, part)), **criterion}
        answer = _posted(client, "/judge/batch", body)
        for each, pair in zip(answer["results"], part, strict=True):
            if each["verdict"] != "abstain":
                right.append(each["verdict"] == pair.label)
        large += (answer["usage"]["large"] or {"comparisons": 0})["comparisons"]
    print(
        f"{name}: coverage {len(right) / len(fresh):.3f}, "
        f"wrong {1 - sum(right) / max(1, len(right)):.4f}, large judge asked about {large} of "
        f"{len(fresh)}, {time.perf_counter() - begun:.1f} s",
        flush=True,
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    drawn = iter(known := distinct())
    unlabeled, labeled, fresh = (list(islice(drawn, n)) for n in (PLANNED, LABELED, FRESH))
    settings = {"SCOPE_MODEL": "demo", "SCOPE_SCORE_CACHE": "off"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with listening(application_of(large_judge(known))) as url:
            with httpx.Client(base_url=url, timeout=600) as large:
                _calibrated(large, labeled)
                _measured("large alone", large, fresh)
            alone = {**settings, "SCOPE_STORE_URL": f"sqlite:///{folder}/small.db"}
            with Server(folder, alone, start_timeout_s=_START_S) as small:
                _calibrated(small.client, labeled)
                _measured("small alone", small.client, fresh)
            both = {
                **settings,
                "SCOPE_STORE_URL": f"sqlite:///{folder}/both.db",
                "SCOPE_ESCALATE_URL": url,
            }
            with Server(folder, both, start_timeout_s=_START_S) as cascade:
                file = folder / "unlabeled.jsonl"
                file.write_text("".join(json.dumps(_fields(pair)) + "\n" for pair in unlabeled))
                address = f"http://127.0.0.1:{cascade.port}"
                command = [SERVE[0], "cascade", "plan", str(file), "--name", "mine"]
                subprocess.run([*command, "--alpha", str(ALPHA), "--url", address], check=True)
                _calibrated(cascade.client, labeled)
                rows = cascade.client.get("/calibrations/mine").json()["thresholds"]
                print([row["cascade"] for row in rows if row["alpha"] == ALPHA], flush=True)
                _measured("cascade", cascade.client, fresh)


if __name__ == "__main__":
    main()
