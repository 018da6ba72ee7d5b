"""Allowed requests that are so expensive that they could delay all others."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_JSON = {"Content-Type": "application/json"}
_BODY_BYTES = 2 * 2**20
_EMPTY_LISTS = b'{"comparisons":[' + b"[]," * ((_BODY_BYTES - 20) // 3) + b"[]]}"
_EXAMPLES = 20_000
_BATCHES, _ALPHAS = 12, 32
_VERSIONS = 1000


def empty_lists(scene: Scene, *, at_once: int) -> str:
    """Sends bodies of 700,000 empty lists."""

    def send() -> str:
        begun = time.perf_counter()
        with scene.client(scene.judge_key) as client:
            try:
                answer = client.post("/judge/batch", content=_EMPTY_LISTS, headers=_JSON)
                outcome = str(answer.status_code)
            except httpx.TransportError:
                # The service may close the connection while the client still sends.
                outcome = "closed"
        return f"{outcome} after {time.perf_counter() - begun:.1f} s"

    with ThreadPoolExecutor(at_once) as senders:
        sent = [senders.submit(send) for _ in range(at_once)]
    return "; ".join(sorted({each.result() for each in sent}, reverse=True)[:2])


def escapes(scene: Scene) -> str:
    """Sends one question of 350,000 escaped characters, four times."""
    question = rb"\u0416" * ((_BODY_BYTES - 200) // 6)
    body = b'{"alpha":null,"question":"' + question + b'","response_a":"x","response_b":"y"}'
    took = []
    with scene.client(scene.judge_key) as client:
        for _ in range(4):
            begun = time.perf_counter()
            client.post("/judge", content=body, headers=_JSON).raise_for_status()
            took.append(time.perf_counter() - begun)
    return f"answered after {max(took):.1f} s at most"


def fresh_alphas(scene: Scene) -> str:
    """Asks for thresholds that are not in the cache, and times the requests of others."""
    large = [{**pair(i), "label": "A" if i % 30 else "B"} for i in range(_EXAMPLES)]
    with scene.client(scene.admin_key) as client:
        added = client.post("/calibrate", json={"calibration": "large", "examples": large})
        added.raise_for_status()

    def batch(number: int) -> tuple[int, float]:
        alphas = [0.05 + (number * _ALPHAS + i) / 2000 for i in range(_ALPHAS)]
        items = [
            {**pair(i), "alpha": a, "guarantee": "pac", "delta": 0.1, "calibration": "large"}
            for i, a in enumerate(alphas)
        ]
        begun = time.perf_counter()
        with scene.client(scene.judge_key) as client:
            answer = client.post("/judge/batch", json={"comparisons": items})
        return answer.status_code, time.perf_counter() - begun

    with ThreadPoolExecutor(_BATCHES) as senders, scene.client(scene.admin_key) as client:
        sent = [senders.submit(batch, number) for number in range(_BATCHES)]
        others: dict[str, Callable[[int], httpx.Response]] = {
            # A batch of this size is not decided on the event loop.
            "another batch": lambda _: client.post(
                "/judge/batch", json={"comparisons": [pair(i) for i in range(100)]}
            ),
            "calibrating": lambda turn: client.post(
                "/calibrate", json={"examples": [{**pair(10**6 + turn), "label": "A"}]}
            ),
            "listing": lambda _: client.get("/calibrations"),
        }
        slowest = dict.fromkeys(others, 0.0)
        turn = 0
        while turn == 0 or not all(each.done() for each in sent):
            for name, ask in others.items():
                begun = time.perf_counter()
                ask(turn).raise_for_status()
                slowest[name] = max(slowest[name], time.perf_counter() - begun)
            turn += 1
    answers = [each.result() for each in sent]
    refused = sum(status == 429 for status, _ in answers)
    slowest_each = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in slowest.items())
    slowest_s = max(seconds for _, seconds in answers)
    return (
        f"batches answered within {slowest_s:.1f} s, {refused} with 429; "
        f"slowest meanwhile: {slowest_each}"
    )


def all_versions(scene: Scene) -> str:
    """Reads a thousand versions at once, five times."""
    with scene.client(scene.admin_key) as client:
        for number in range(_VERSIONS):
            example = {**pair(number), "label": "A"}
            body = {"calibration": "changed", "examples": [example]}
            client.post("/calibrate", json=body).raise_for_status()
        took = []
        for _ in range(5):
            begun = time.perf_counter()
            found = client.get("/calibrations/changed/versions", params={"limit": _VERSIONS})
            took.append(time.perf_counter() - begun)
            assert len(found.json()["versions"]) == _VERSIONS
    return f"answered after {max(took):.2f} s at most"


ATTACKS = (
    Attack(
        "empty-lists",
        "one batch of 700,000 empty lists in 2 MiB",
        lambda scene: empty_lists(scene, at_once=1),
        cheap=True,
    ),
    Attack(
        "eight-empty-lists",
        "eight batches of 700,000 empty lists at once",
        lambda scene: empty_lists(scene, at_once=8),
    ),
    Attack(
        "escapes",
        "a question of 350,000 escaped characters in 2 MiB, four times",
        escapes,
    ),
    Attack(
        "fresh-alphas",
        f"{_BATCHES} batches, each with {_ALPHAS} alphas under `pac` that nobody has asked for, on "
        f"{_EXAMPLES:,} examples",
        fresh_alphas,
        settings={
            "SCOPE_MAX_BATCH": str(_EXAMPLES),
            "SCOPE_MAX_PENDING": str(2 * _EXAMPLES),
            "SCOPE_MAX_BODY_BYTES": str(4 * 2**20),
        },
    ),
    Attack(
        "all-versions",
        "all 1,000 versions of a calibration set are requested at once, five times",
        all_versions,
    ),
)
