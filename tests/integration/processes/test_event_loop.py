"""Requests at the limits of their routes do not hold up others: the event loop goes on.

Each case stops the loop for most of its answer if its work is done there instead of in a thread.
"""

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

# The largest part of an answer's time for which /healthz may wait, unless that is soon anyway. The
# best of the repeats counts: a busy machine disturbs most of them.
LARGEST_SHARE, SOON_S, REPEATS = 0.4, 0.03, 100
LARGE = "/calibrations/large"
fresh = itertools.count()


def many(of: Callable[[int], dict[str, Any]]) -> bytes:
    """A thousand comparisons; each call has new ones."""
    comparisons = [of(next(fresh)) for _ in range(1000)]
    return json.dumps({"comparisons": comparisons, "calibration": "large"}).encode()


def short(number: int) -> dict[str, Any]:
    answers = {"response_a": f"quality={number % 40 / 10}", "response_b": "quality=0"}
    return {"question": f"{number}?", **answers}


def conversation(number: int) -> dict[str, Any]:
    """A comparison with 20 turns."""
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant") * 10]
    answers = [f"quality={number % 40 / 10}"] * 10
    return {"question": turns, "response_a": answers, "response_b": ["x"] * 10, "id": number}


def names() -> bytes:
    """As many unknown fields as a body has room for."""
    return json.dumps({f"{i}": 1 for i in range(2**21 // 20 - 2)}).encode()


def imported() -> bytes:
    """As many new scores as a body has room for, with as many digits as a judge computes."""
    first = next(fresh)
    scored = []
    for i in range(10_000):
        digest = hashlib.sha256(f"{first} {i}".encode()).hexdigest()
        gap = 1.2345678901234567 - i / 70_001
        scores = {"gap_fwd": gap, "gap_rev": -gap, "label_mass": 0.9876543210987654}
        scored.append({"digest": digest, **scores, "label": "A" if i % 30 else "B"})
    body = {"fingerprint": scripted_fingerprint(), "examples": scored, "replace": True}
    return json.dumps(body, separators=(",", ":")).encode()


def group() -> bytes:
    texts = [f"quality={i % 40 / 10} {next(fresh):07} " + "a word, " * 1500 for i in range(45)]
    return json.dumps({"question": "?", "responses": texts, "calibration": "large"}).encode()


def alphas() -> str:
    """A query with as many alphas as a request may have, which no other one had."""
    more = next(fresh) % 90 / 10_000
    return "?" + "&".join(f"alpha={0.05 + i / 100 + more:.4f}" for i in range(32))


# Path, what makes a new query, and what makes a new body; without one the request is a GET.
CASES: dict[str, tuple[str, Callable[[], str], Callable[[], bytes] | None]] = {
    "names": ("/judge", str, names),
    "deep lists": (
        "/judge/batch",
        str,
        lambda: b'{"comparisons":[' + (b"[" * 190 + b"]" * 190 + b",") * 550 + b"1]}",
    ),
    "conversations": ("/judge/batch", str, lambda: many(conversation)),
    "group": ("/rewards/group", str, group),
    "alphas": (LARGE, alphas, None),
    "examples": (f"{LARGE}/examples", lambda: "?limit=10000", None),
    "import": ("/calibrations/imported/examples", str, imported),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with a large set, and a thousand open audits with texts."""
    folder = tmp_path_factory.mktemp("large")
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": f"sqlite:///{folder}/sets.db",
        "SCOPE_AUDIT_RATE": "1",
        "SCOPE_AUDIT_TEXTS": "on",
    }
    with Server(folder, settings) as running:
        for path, body in ((f"{LARGE}/examples", imported()), ("/judge/batch", many(short))):
            asked(running.client, path, body).raise_for_status()
        yield running


def asked(client: httpx.Client, path: str, body: bytes | None) -> httpx.Response:
    method, headers = "GET" if body is None else "POST", {"Content-Type": "application/json"}
    return client.request(method, path, content=body, headers=headers)


def is_held_up(server: Server, path: str, body: bytes | None, *, soon_s: float = SOON_S) -> bool:
    """Whether /healthz waits for most of the time in which a request is answered."""
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(asked(server.client, path, body)))
    longest = 0.0
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as looking:
        looking.get("/healthz")
        asking.start()
        while asking.is_alive():
            begun = time.perf_counter()
            looking.get("/healthz")
            longest = max(longest, time.perf_counter() - begun)
            time.sleep(0.002)
    (answer,) = answers
    # Unknown fields are refused.
    assert answer.status_code == (422 if path == "/judge" else 200), answer.text[:500]
    return longest > max(soon_s, LARGEST_SHARE * answer.elapsed.total_seconds())


@pytest.mark.parametrize("name", CASES)
def test_no_route_holds_up_other_requests(server: Server, name: str) -> None:
    path, query, body = CASES[name]
    assert not all(is_held_up(server, path + query(), body and body()) for _ in range(REPEATS))


def test_the_largest_batch_of_labels_holds_up_no_other_request(server: Server) -> None:
    audits = server.client.get(f"/audits?calibration=large&limit={MOST_LABELS}").json()["audits"]
    labels = itertools.cycle("AB")

    def body() -> bytes:
        label = next(labels)
        rows = [{"id": audit["id"], "label": label} for audit in audits]
        return json.dumps({"labels": rows}).encode()

    # Labels are sorted on the event loop, which takes 45 ms on a quiet machine.
    assert not all(is_held_up(server, "/audits/labels", body(), soon_s=0.1) for _ in range(REPEATS))
