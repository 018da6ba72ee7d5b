"""Tests that requests at the limits of their routes do not block the event loop for 50 ms.

All other requests wait while the event loop is blocked: judgments, /healthz, new connections.
"""

import hashlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from app.api.routes.audits import MOST_LABELS
from app.ports import KEPT_VERSIONS
from tests.integration.processes import ticking_service
from tests.integration.processes.server import free_port
from tests.integration.processes.ticking_service import audit_id
from tests.serving import scripted_fingerprint

LONGEST_S = 0.05
# Seconds of the yardstick on a quiet core of the machine for which the limit was chosen.
YARDSTICK_S = 0.02
# One undisturbed repeat suffices; a busy machine disturbs most of them.
REPEATS = 20
JSON = {"Content-Type": "application/json"}
# Bytes of the long part of the largest body; the rest is for the fields around it.
LARGEST = 2 * 2**20 - 500
# Most lists, objects and fields of a body.
PARTS = 2 * 2**20 // 20
ITEM = {"question": "Which?", "response_a": "quality=3", "response_b": "quality=0"}
USED = {**ITEM, "calibration": "large"}

fresh = itertools.count()


class Case(NamedTuple):
    """A request at the limits of its route.

    Args:
        route: Method and path.
        status: Expected status of the answer.
        body: Makes a new body for each request; None if the route has no body.
        url: URL of the request if it differs from the path of the route.
    """

    route: tuple[str, str]
    status: int = 200
    body: Callable[[], bytes] | None = None
    url: str = ""


def question(part: str) -> bytes:
    """A request without an alpha and with the longest possible question, which repeats `part`."""
    body = json.dumps({**ITEM, "question": "@", "alpha": None}).encode()
    written = part.encode()
    return body.replace(b"@", written * (LARGEST // len(written)))


def turns(count: int) -> list[dict[str, str]]:
    roles = itertools.cycle(("user", "assistant"))
    return [{"role": next(roles), "content": "x"} for _ in range(count)]


def conversation(number: int) -> dict[str, Any]:
    """A comparison with 20 turns; each number gives a different one."""
    answers = [f"quality={number % 40 / 10}"] * 10
    return {"question": turns(20), "response_a": answers, "response_b": ["x"] * 10, "id": number}


def many(of: Callable[[int], dict[str, Any]]) -> bytes:
    comparisons = [of(next(fresh)) for _ in range(1000)]
    return json.dumps({"comparisons": comparisons, "calibration": "large"}).encode()


def examples(of: Callable[[int], dict[str, Any]]) -> bytes:
    labeled = [{**of(next(fresh)), "label": "A"} for _ in range(1000)]
    return json.dumps({"calibration": "large", "examples": labeled}).encode()


def pairs(of: Callable[[int], dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"comparisons": [of(next(fresh)) for _ in range(1000)], **more}).encode()


def imported() -> bytes:
    """As many judged examples as the largest body holds; each call has new ones."""
    first, scored = next(fresh), []
    for i in range(10_500):
        digest = hashlib.sha256(f"{first} {i}".encode()).hexdigest()
        gap = 1.2345678901234567 - i / 70_001
        scores = {"gap_fwd": gap, "gap_rev": -gap, "label_mass": 0.9876543210987654}
        scored.append({"digest": digest, **scores, "label": "A" if i % 30 else "B"})
    body = {"fingerprint": scripted_fingerprint(), "examples": scored, "replace": True}
    return json.dumps(body, separators=(",", ":")).encode()


def long_text(number: int) -> dict[str, Any]:
    return {**ITEM, "question": f"{number}: " + "a word, " * 225}


def wrong(_: int) -> dict[str, Any]:
    return {
        **{"question": [{"role": "tool"}], "response_a": 3, "response_b": None, "id": []},
        **{"alpha": 3, "guarantee": "x", "delta": 7, "calibration": "?"},
        **{f"unknown {i}": 1 for i in range(60)},
    }


def an_alpha(guarantee: str) -> Callable[[int], dict[str, Any]]:
    return lambda number: {**USED, "alpha": 0.05 + number % 32 / 200, "guarantee": guarantee}


def answers(number: int) -> list[str]:
    return [f"quality={number % 40 / 10} {next(fresh):07} " + "a word, " * 250, f"{number}"]


def decisions(questions: Any, **fields: Any) -> bytes:
    return json.dumps({"questions": questions, "alpha": None, **fields}).encode()


def pac() -> bytes:
    of = an_alpha("pac")
    return json.dumps({"comparisons": [of(next(fresh)) for _ in range(32)]}).encode()


def responses(count: int, *, words: int = 900) -> list[str]:
    """Different responses; each call has new ones."""
    return [f"quality={i % 40 / 10} {next(fresh):07} " + "a word, " * words for i in range(count)]


def reward(**fields: Any) -> Callable[[], bytes]:

    def body() -> bytes:
        made = {name: make() for name, make in fields.items()}
        return json.dumps({**made, "calibration": "large"}).encode()

    return body


REWARDS = "/rewards/"
ONE, BATCH = ("POST", "/judge"), ("POST", "/judge/batch")
ADD, ROLLBACK = ("POST", "/calibrate"), ("POST", "/calibrations/{name}/rollback")
EXPORT, IMPORT = (
    ("GET", "/calibrations/{name}/examples"),
    ("POST", "/calibrations/{name}/examples"),
)
POOL, NEXT = ("POST", "/calibrations/{name}/pool"), ("GET", "/calibrations/{name}/next")
SET, TRAIL = ("GET", "/calibrations/{name}"), ("GET", "/calibrations/{name}/versions")
# One case for each thing that took long once. Those that do not change the store come first.
_labels = itertools.cycle("AB")


def audit_labels() -> bytes:
    """The largest batch of labels; each one changes all of them."""
    label = next(_labels)
    rows = [{"id": audit_id(i), "label": label} for i in range(MOST_LABELS)]
    return json.dumps({"labels": rows}).encode()


# A rollback makes a version, so each one goes back to the oldest version that is still kept.
_oldest = itertools.count(ticking_service.VERSIONS - KEPT_VERSIONS + 1)


def far_back() -> bytes:
    return json.dumps({"version": next(_oldest)}).encode()


CASES: dict[str, Case] = {
    "text": Case(ONE, 200, lambda: question("a word, ")),
    "turns": Case(
        ONE,
        200,
        lambda: json.dumps({**ITEM, "question": turns(PARTS // 4), "alpha": None}).encode(),
    ),
    "names": Case(ONE, 422, lambda: json.dumps({f"{i}": 1 for i in range(PARTS - 1)}).encode()),
    "deep lists": Case(
        BATCH,
        200,
        lambda: (
            b'{"comparisons":[' + (b"[" * 190 + b"]" * 190 + b",") * (PARTS // 190 - 1) + b"1]}"
        ),
    ),
    "numbers": Case(BATCH, 413, lambda: b'{"comparisons":[' + b"1," * 10**6 + b"1]}"),
    "long texts": Case(BATCH, 200, lambda: many(long_text)),
    "conversations": Case(BATCH, 200, lambda: many(conversation)),
    "pac alphas": Case(BATCH, 200, pac),
    "faults": Case(BATCH, 200, lambda: many(wrong)),
    "largest group": Case(
        ("POST", f"{REWARDS}group"),
        200,
        reward(question=lambda: "Which?", responses=lambda: responses(45, words=1500)),
    ),
    "many groups": Case(
        ("POST", f"{REWARDS}groups"),
        200,
        reward(
            groups=lambda: [
                {"question": "Which?", "responses": responses(2, words=250)} for _ in range(400)
            ]
        ),
    ),
    "many decisions": Case(
        ("POST", "/v1/systemone"),
        200,
        lambda: decisions(
            {
                f"q{i}": {"type": "choice", "criteria": dict(zip("ab", answers(i), strict=True))}
                for i in range(400)
            },
            state="a word, " * 600,
        ),
    ),
    "one set": Case(SET, url="/calibrations/large"),
    "alphas of a set": Case(
        SET,
        url="/calibrations/large?" + "&".join(f"alpha={0.05 + 0.01 * i:.2f}" for i in range(32)),
    ),
    "next": Case(NEXT, url=f"/calibrations/pooled/next?alpha=0.2&limit={ticking_service.POOL}"),
    "versions": Case(TRAIL, url="/calibrations/changed/versions?limit=1000"),
    "examples": Case(EXPORT, url="/calibrations/large/examples?limit=10000"),
    "audits": Case(("GET", "/audits"), url="/audits?status=labelled&limit=1000"),
    "labels": Case(("POST", "/audits/labels"), 200, audit_labels),
    "absorption": Case(
        ("POST", "/calibrations/{name}/absorb"),
        200,
        lambda: b'{"even_if_infeasible": true}',
        "/calibrations/audited/absorb",
    ),
    "long examples": Case(ADD, 200, lambda: examples(long_text)),
    "import": Case(IMPORT, 200, imported, "/calibrations/imported/examples"),
    "pool": Case(
        POOL,
        200,
        lambda: pairs(long_text, even_if_infeasible=True),
        "/calibrations/large/pool",
    ),
    "far back": Case(ROLLBACK, 200, far_back, "/calibrations/changed/rollback"),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of `ticking_service`."""
    port, folder = free_port(), str(tmp_path_factory.mktemp("ticking"))
    module = "tests.integration.processes.ticking_service"
    command = [sys.executable, "-m", module, str(port), folder]
    with (
        subprocess.Popen(command) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client,
    ):
        try:
            while True:
                assert service.poll() is None, "the service has ended"
                try:
                    client.get("/stall")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield client
        finally:
            service.terminate()


def stalls(client: httpx.Client, case: Case) -> Iterator[float]:
    """The longest stall of each repeat in seconds, scaled to the speed of the reference machine."""
    method, path = case.route
    for _ in range(REPEATS):
        body = case.body() if case.body else None
        # Reset the clock, and measure the machine's speed without a request.
        client.get("/stall")
        slowness = statistics.median(client.get("/yardstick").json() for _ in range(3))
        time.sleep(0.02)
        client.get("/stall")
        try:
            answer = client.request(method, case.url or path, content=body, headers=JSON)
            assert answer.status_code == case.status, answer.text[:500]
        except httpx.WriteError:
            # The service refused the body and closed the connection before everything was sent.
            assert case.status == 413
        time.sleep(0.02)
        stall = client.get("/stall").json()
        if case.route in (ADD, POOL):
            # The set has room for the next repeat.
            before = {"version": answer.json()["version"] - 1}
            client.post("/calibrations/large/rollback", json=before).raise_for_status()
        yield stall / max(1.0, slowness / YARDSTICK_S)


@pytest.mark.parametrize("name", CASES)
def test_no_route_stops_the_event_loop_for_50_ms(client: httpx.Client, name: str) -> None:
    case = CASES[name]
    found: list[float] = []
    for stall in stalls(client, case):
        found.append(stall)
        if stall < LONGEST_S:
            break
    assert min(found) < LONGEST_S, [f"{stall * 1000:.0f} ms" for stall in found]
