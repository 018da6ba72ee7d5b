"""Requests at the limits of their routes do not hold up others: the event loop goes on."""

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.api.routes.audits import MOST_LABELS
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.serving import scripted_fingerprint

# The longest time that /healthz may take meanwhile, in the best of the repeats: a busy machine
# disturbs most of them.
LONGEST_S, REPEATS = 0.25, 10
# Bytes of the long part of the largest body; the rest is for the fields around it.
LARGEST = 2 * 2**20 - 500
ITEM = {"question": "Which?", "response_a": "quality=3", "response_b": "quality=0"}
fresh = itertools.count()


def many(of: Callable[[int], dict[str, Any]], key: str = "comparisons", **more: Any) -> bytes:
    """A thousand items; each call has new ones."""
    return json.dumps({key: [of(next(fresh)) for _ in range(1000)], **more}).encode()


def short(number: int) -> dict[str, Any]:
    return {**ITEM, "question": f"{number}?", "response_a": f"quality={number % 40 / 10}"}


def long_text(number: int) -> dict[str, Any]:
    return {**ITEM, "question": f"{number}: " + "a word, " * 225}


def conversation(number: int) -> dict[str, Any]:
    """A comparison with 20 turns."""
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant") * 10]
    answers = [f"quality={number % 40 / 10}"] * 10
    return {"question": turns, "response_a": answers, "response_b": ["x"] * 10, "id": number}


def wrong(_: int) -> dict[str, Any]:
    return {
        **{"question": [{"role": "tool"}], "response_a": 3, "response_b": None, "id": []},
        **{"alpha": 3, "guarantee": "x", "delta": 7, "calibration": "?"},
        **{f"unknown {i}": 1 for i in range(60)},
    }


def imported() -> bytes:
    """As many judged examples as the largest body holds; each call has new ones."""
    first, scored = next(fresh), []
    for i in range(10_500):
        digest = hashlib.sha256(f"{first} {i}".encode()).hexdigest()
        gap = 1.2345678901234567 - i / 70_001
        scores = {"gap_fwd": gap, "gap_rev": -gap, "label_mass": 0.9876543210987654}
        scored.append({"digest": digest, **scores, "label": "A" if i % 30 else "B"})
    body = {"fingerprint": scripted_fingerprint(), "examples": scored}
    return json.dumps(body, separators=(",", ":")).encode()


def group() -> bytes:
    texts = [f"quality={i % 40 / 10} {next(fresh):07} " + "a word, " * 1500 for i in range(45)]
    return json.dumps({"question": "?", "responses": texts, "calibration": "large"}).encode()


def decisions() -> bytes:
    questions = {
        f"q{i}": {"type": "choice", "criteria": {"a": f"{next(fresh)} " + "word, " * 250, "b": "b"}}
        for i in range(400)
    }
    return json.dumps({"questions": questions, "alpha": None, "state": "a word, " * 600}).encode()


LARGE = "/calibrations/large"
# Route, expected status, and what makes a new body; without one the request is a GET.
CASES: dict[str, tuple[str, int, Callable[[], bytes] | None]] = {
    "text": (
        "/judge",
        200,
        lambda: json.dumps(
            {**ITEM, "question": "a word, " * (LARGEST // 8), "alpha": None}
        ).encode(),
    ),
    "names": (
        "/judge",
        422,
        lambda: json.dumps({f"{i}": 1 for i in range(2**21 // 20 - 2)}).encode(),
    ),
    "deep lists": (
        "/judge/batch",
        200,
        lambda: b'{"comparisons":[' + (b"[" * 190 + b"]" * 190 + b",") * 550 + b"1]}",
    ),
    "long texts": ("/judge/batch", 200, lambda: many(long_text, calibration="large")),
    "conversations": ("/judge/batch", 200, lambda: many(conversation, calibration="large")),
    "faults": ("/judge/batch", 200, lambda: many(wrong)),
    "largest group": ("/rewards/group", 200, group),
    "many decisions": ("/v1/systemone", 200, decisions),
    "one set": (
        f"{LARGE}?" + "&".join(f"alpha={0.05 + i / 100:.2f}" for i in range(32)),
        200,
        None,
    ),
    "next": ("/calibrations/pooled/next?alpha=0.2&limit=10000", 200, None),
    "examples": (f"{LARGE}/examples?limit=10000", 200, None),
    "audits": ("/audits?calibration=large&limit=1000", 200, None),
    "long examples": (
        "/calibrate",
        200,
        lambda: many(lambda number: {**long_text(number), "label": "A"}, "examples", dry_run=True),
    ),
    "import": ("/calibrations/imported/examples", 200, lambda: imported()),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a large set, a large pool, and thousands of open audits with texts."""
    folder = tmp_path_factory.mktemp("large")
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": f"sqlite:///{folder}/sets.db",
        "SCOPE_AUDIT_RATE": "1",
        "SCOPE_AUDIT_TEXTS": "on",
    }
    with Server(folder, settings) as running:
        for _ in range(4):
            post(running.client, f"{LARGE}/examples", imported())
        for _ in range(10):
            post(running.client, "/calibrations/pooled/pool", many(short, even_if_infeasible=True))
        for _ in range(5):
            post(running.client, "/judge/batch", many(short, calibration="large"))
        yield running


def post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text[:500]
    return answer


def longest_wait(server: Server, path: str, status: int, body: bytes | None) -> float:
    """The longest answer of /healthz while a request is answered, in seconds."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        method, headers = "GET" if body is None else "POST", {"Content-Type": "application/json"}
        answers.append(server.client.request(method, path, content=body, headers=headers))

    asking, longest = threading.Thread(target=ask), 0.0
    with httpx.Client(base_url=server.client.base_url, timeout=PATIENCE_S) as looking:
        looking.get("/healthz")
        asking.start()
        while asking.is_alive():
            begun = time.perf_counter()
            looking.get("/healthz")
            longest = max(longest, time.perf_counter() - begun)
            time.sleep(0.005)
    (answer,) = answers
    assert answer.status_code == status, answer.text[:500]
    return longest


@pytest.mark.parametrize("name", CASES)
def test_no_route_holds_up_other_requests(server: Server, name: str) -> None:
    path, status, make = CASES[name]
    waits: list[float] = []
    while not waits or min(waits) > LONGEST_S:
        assert len(waits) < REPEATS, waits
        waits.append(longest_wait(server, path, status, make() if make else None))


def test_the_largest_batch_of_labels_holds_up_no_other_request(server: Server) -> None:
    audits = server.client.get(f"/audits?calibration=large&limit={MOST_LABELS}").json()["audits"]
    waits: list[float] = []
    for _, label in zip(range(REPEATS), itertools.cycle("AB"), strict=False):
        labels = [{"id": audit["id"], "label": label} for audit in audits]
        body = json.dumps({"labels": labels}).encode()
        waits.append(longest_wait(server, "/audits/labels", 200, body))
        if waits[-1] < LONGEST_S:
            break
    assert min(waits) < LONGEST_S, waits
