"""Measures a cascade of two judges on vLLM.

python -m tests.demo_judge.measure_cascade

The large judge is the demo judge. The small one is its first four layers of five, without further
training: it is cheaper, and right less often. The questions are those of the demo judge without the
family "alphabet", which has too few. Both services keep scores, so each judge scores a pair once.
"""

import json
import random
import shutil
import subprocess
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import torch
from transformers import LlamaForCausalLM

from app.demo.pairs import FAMILIES, Pair, pairs
from app.settings import DEMO_FOLDER
from tests.integration.processes.server import SERVE, Server

# The plan is for the first alpha.
ALPHAS, DELTA = (0.1, 0.05), 0.1
PLANNED, LABELED, FRESH = 1000, 1000, 2000
_SEED, _LAYERS = 11, 4
_IN_REQUEST, _START_S = 125, 600.0
_SETTINGS = {
    "SCOPE_TIMEOUT_S": "600",
    "SCOPE_MAX_MODEL_LEN": "1024",
    "SCOPE_SCORE_CACHE": "86400",
}


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


def first_layers(folder: Path) -> Path:
    """Writes the small judge: the first layers of the demo judge, with its tokenizer."""
    shutil.copytree(DEMO_FOLDER / "model", folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.model.layers = model.model.layers[:_LAYERS]
    model.config.num_hidden_layers = _LAYERS
    model.save_pretrained(folder)
    return folder


def _criterion(alpha: float) -> dict[str, Any]:
    return {"alpha": alpha, "guarantee": "pac", "delta": DELTA, "calibration": "mine"}


def _fields(pair: Pair) -> dict[str, str]:
    return {
        "question": pair.question,
        "response_a": pair.response_a,
        "response_b": pair.response_b,
    }


def _posted(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, json=body, timeout=600)
    assert response.status_code == 200, response.text
    return response.json()


def _calibrated(client: httpx.Client, labeled: list[Pair]) -> None:
    for start in range(0, len(labeled), _IN_REQUEST):
        part = labeled[start : start + _IN_REQUEST]
        examples = [{**_fields(pair), "label": pair.label} for pair in part]
        _posted(client, "/calibrate", {"calibration": "mine", "examples": examples})


def _measured(name: str, client: httpx.Client, fresh: list[Pair], alpha: float) -> None:
    """Judges fresh pairs, and prints coverage, error and calls."""
    results: list[dict[str, Any]] = []
    for start in range(0, len(fresh), _IN_REQUEST):
        part = fresh[start : start + _IN_REQUEST]
        body = {"comparisons": list(map(_fields, part)), **_criterion(alpha)}
        results += _posted(client, "/judge/batch", body)["results"]
    both = list(zip(results, fresh, strict=True))
    given = [each["verdict"] == pair.label for each, pair in both if each["verdict"] != "abstain"]
    asked = sum(len(each["rungs"] or ()) == 2 for each in results)
    right = sum(each["preferred"] == pair.label for each, pair in both)
    print(
        f"{name}, alpha {alpha}: accuracy {right} of {len(fresh)}, verdicts {len(given)}, wrong "
        f"{len(given) - sum(given)}, escalated {asked}",
        flush=True,
    )


def main() -> None:
    drawn = iter(distinct())
    unlabeled, labeled, fresh = (list(islice(drawn, n)) for n in (PLANNED, LABELED, FRESH))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large").mkdir()
        small = first_layers(folder / "first-layers")
        demo = {**_SETTINGS, "SCOPE_MODEL": "demo", "SCOPE_STORE_URL": "memory://"}
        with Server(folder / "large", demo, start_timeout_s=_START_S) as large:
            first = {
                **_SETTINGS,
                "SCOPE_MODEL": str(small),
                "SCOPE_STORE_URL": f"sqlite:///{folder}/small.db",
                "SCOPE_ESCALATE_URL": large.url,
            }
            with Server(folder, first, start_timeout_s=_START_S) as service:
                file = folder / "unlabeled.jsonl"
                file.write_text("".join(json.dumps(_fields(pair)) + "\n" for pair in unlabeled))
                address = service.url
                command = [SERVE[0], "cascade", "plan", str(file), "--name", "mine"]
                subprocess.run([*command, "--alpha", str(ALPHAS[0]), "--url", address], check=True)
                _calibrated(service.client, labeled)
                rows = service.client.get("/calibrations/mine").json()["thresholds"]
                _calibrated(large.client, labeled)
                for alpha in ALPHAS:
                    print([row["cascade"] for row in rows if row["alpha"] == alpha], flush=True)
                    _measured("cascade", service.client, fresh, alpha)
                    _measured("large alone", large.client, fresh, alpha)


if __name__ == "__main__":
    main()
