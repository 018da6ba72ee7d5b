"""Running services with sets, audits and an alarm, for the tests of the desk."""

import random
from typing import Any

import httpx

SEED = 20


def pairs(count: int, *, start: int, gap: float | None = None) -> list[dict[str, Any]]:
    """Pairs whose judge is wrong more often where it is less sure; gaps are random by default."""
    rng = random.Random(f"{SEED} {start}")
    found = []
    for number in range(start, start + count):
        quality = gap if gap is not None else rng.expovariate(0.4) * rng.choice((-1, 1))
        is_right = rng.random() < 1 - 0.45 * 2.0 ** -abs(quality)
        prefers_a = quality > 0
        found.append(
            {
                "question": f"Question {number}?",
                "response_a": f"quality={quality:.6f}",
                "response_b": "quality=0",
                "label": "A" if prefers_a == is_right else "B",
            }
        )
    return found


def calibrate(client: httpx.Client, name: str, examples: list[dict[str, Any]]) -> None:
    body = {"calibration": name, "examples": examples}
    client.post("/calibrate", json=body).raise_for_status()


def judged(
    client: httpx.Client, name: str, given: list[dict[str, Any]], *, alpha: float = 0.1
) -> list[dict[str, Any]]:
    """Judgments of pairs with a set."""
    texts = [{k: v for k, v in pair.items() if k != "label"} for pair in given]
    body = {"calibration": name, "alpha": alpha, "comparisons": texts}
    results: list[dict[str, Any]] = (
        client.post("/judge/batch", json=body).raise_for_status().json()["results"]
    )
    return results


def furnish(client: httpx.Client) -> None:
    """Makes a set that keeps its promise, one with an alarm, and one without audits."""
    for name, start in (("default", 0), ("drifted", 10_000)):
        calibrate(client, name, pairs(400, start=start))
        calibrate(client, name, pairs(50, start=start + 400))
        # The judge is sure of all pairs of the drifted traffic, and wrong in half of them.
        fresh = pairs(120, start=start + 1000, gap=4.0 if name == "drifted" else None)
        labels = [
            {
                "id": judgment["audit"]["id"],
                "label": "AB"[number % 2] if name == "drifted" else fresh[number]["label"],
            }
            for number, judgment in enumerate(judged(client, name, fresh)[:100])
        ]
        client.post("/audits/labels", json={"labels": labels}).raise_for_status()
    for start in (20_000, 21_000):
        calibrate(client, "quiet", pairs(200, start=start))


SETTINGS = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://", "SCOPE_AUDIT_RATE": "1"}
