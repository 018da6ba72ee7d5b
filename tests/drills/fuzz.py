"""`make fuzz`: sends at least 20,000 requests to a running service, and checks every answer.

schemathesis makes half of them from the OpenAPI document; the others are sound requests with
damaged bytes. Exits with 1 on any server error, hang, error that is not problem+json, undocumented
answer, or route that no request reached. Prints the seed.
"""

import argparse
import itertools
import json
import math
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import Interaction, ScenarioRecorder

from tests.integration.processes.server import Server
from tests.redis_server import RedisServer
from tests.unit.api.corpus import cases
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples
from tests.wire import (
    NO_HTTP,
    Answer,
    NoAnswer,
    exchange,
    problem_faults,
    request_bytes,
    strict_json,
)

# A body that never ends is answered after this time. A valid one of 8 MB takes 5 s on a busy
# machine. A request that takes HANG_S counts as hung.
TIMEOUT_S = 12
HANG_S = 120.0
_KEEPER = "keeper"
_SAMPLES = 3
_READS = ("/calibrations", "/calibrations/fuzz/versions?limit=5", "/info", "/openapi.json")
_BODIES: dict[str, Any] = {
    "/judge": comparison(alpha=0.2, guarantee="pac", delta=0.2, calibration="fuzz", id="x"),
    "/judge/batch": {"comparisons": [comparison(id=7), comparison(alpha=None)], "alpha": 0.3},
    "/rewards/group": {"question": "Which?", "responses": ["quality=1", "", "quality=0"]},
    "/calibrate": {"calibration": "fuzz", "examples": examples(6), "dry_run": True},
    "/calibrations/fuzz/rollback": {"version": 1, "dry_run": True},
    "/audits/labels": {"labels": [{"id": "0" * 32, "label": "A"}]},
}
_SIGNS = (b"{", b"]", b'"', b"\\u", b"\x00", b"e999", b"\r\n", b"\r\n\r\n", b": ", b" ", b"%", b"/")
# Checks of schemathesis that do not fit: JSON Schema cannot say which texts are blank, which chats
# are texts and when an alarm can be resumed, and a set outlives its deletion in its trail.
_LEFT_OUT = ("positive_data_acceptance", "use_after_free")


class Document:
    """The OpenAPI document, as a specification of answers."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.routes = [
            f"{method.upper()} {path}"
            for path, methods in content["paths"].items()
            for method in methods
        ]
        self._validator = cache(self._make_validator)

    def route_of(self, method: str, target: str) -> str | None:
        """The documented route of a request; None if there is none."""
        path = target.partition("?")[0]
        for route in self.routes:
            verb, _, template = route.partition(" ")
            if verb == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
                return route
        return None

    def fault(self, route: str | None, answer: Answer) -> str | None:
        """How an answer differs from the document; route None is in no document."""
        if answer.status >= 500:
            return f"a server error: {answer.status}"
        if answer.status >= 400:
            faults = problem_faults(answer)
            if faults or route is None:
                return faults[0] if faults else None
        if route is None:
            return None if answer.status == 200 else f"{answer.status} at an unknown path"
        responses = self._responses(route)
        told = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX")
        if told is None:
            return f"status {answer.status} is not documented for {route}"
        if answer.status >= 400:
            return None
        kind, kinds = answer.headers.get("content-type", "").partition(";")[0], told.get("content")
        if not kinds:
            return f"{answer.status} with a body" if answer.body else None
        if kind not in kinds:
            return f"content type {kind!r} is not documented for {route}"
        if kind != "application/json":
            return None
        try:
            found = strict_json(answer.body)
        except ValueError as exc:
            return f"the answer is not JSON: {exc}"
        error = next(iter(self._validator(route, str(answer.status)).iter_errors(found)), None)
        return None if error is None else f"not as documented: {error.message[:200]}"

    def _responses(self, route: str) -> dict[str, Any]:
        method, _, path = route.partition(" ")
        responses: dict[str, Any] = self.content["paths"][path][method.lower()]["responses"]
        return responses

    def _make_validator(self, route: str, status: str) -> jsonschema_rs.Validator:
        schema = self._responses(route)[status]["content"]["application/json"]["schema"]
        components = {"components": self.content["components"]}
        return jsonschema_rs.validator_for({**schema, **components})


class Scene:
    """A running service with the scripted judge, its document, and what was found out about it."""

    def __init__(self, name: str, server: Server, headers: dict[str, str]) -> None:
        self.name = name
        self.server = server
        self.headers = headers
        response = server.client.get("/openapi.json", headers=headers)
        self.document = Document(response.json())
        self.statuses: Counter[str] = Counter()
        self.reached: set[str] = set()
        self.slowest = 0.0
        self.faults: Counter[str] = Counter()

    def count(self, route: str, status: str, seconds: float) -> None:
        self.statuses[status] += 1
        self.reached.add(route)
        self.slowest = max(self.slowest, seconds)

    def fail(self, check: str, example: str) -> None:
        """Counts a fault, and prints the first examples."""
        self.faults[check] += 1
        if self.faults[check] <= _SAMPLES:
            print(f"{self.name}: {check}: {example}", flush=True)

    def check_health(self) -> None:
        """Checks that the service is ready and judges a known pair as before."""
        try:
            ready = self.server.client.get("/readyz", timeout=HANG_S)
            judged = self._post("/judge", comparison(alpha=None))
        except httpx.HTTPError as exc:
            self.fail("still answers", type(exc).__name__)
            return
        # The gap is 3.9 in both orders: p_bar = 1 / (1 + e**-3.9).
        right = judged.status_code == 200 and math.isclose(
            judged.json()["p_bar"], 1 / (1 + math.exp(-3.9)), rel_tol=1e-12
        )
        if ready.json() != {"status": "ready"} or not right:
            self.fail("still ready and right", f"{ready.text[:200]} {judged.text[:200]}")

    def check_end(self) -> None:
        """Checks that each route was reached, and that the service calibrates and judges."""
        for route in sorted(set(self.document.routes) - self.reached):
            self.fail("every documented route is reached", route)
        made = self._post("/calibrate", {"calibration": "after-all", "examples": examples()})
        judged = self._post("/judge", comparison(calibration="after-all"))
        if made.json().get("n") != 60 or judged.json().get("verdict") != "A":
            self.fail("still calibrates and judges", f"{made.text[:200]} {judged.text[:200]}")

    def _post(self, path: str, body: Any) -> httpx.Response:
        return self.server.client.post(path, json=body, headers=self.headers, timeout=HANG_S)


@contextmanager
def scene(folder: Path, *, with_redis: bool) -> Iterator[Scene]:
    """A service without keys on a SQLite file, or one with keys on a Redis of its own."""
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": f"sqlite:///{folder}/sets.db",
        "SCOPE_TIMEOUT_S": str(TIMEOUT_S),
        "SCOPE_LOG_LEVEL": "warning",
    }
    with ExitStack() as stack:
        if with_redis:
            settings["SCOPE_STORE_URL"] = stack.enter_context(RedisServer(folder)).url
            roles = ("judge", "calibrate", "label", "admin")
            settings["SCOPE_API_KEYS_FILE"] = str(
                write_keys(folder / "keys.json", entry(_KEEPER, roles))
            )
        server = stack.enter_context(Server(folder, settings))
        name = "redis with keys" if with_redis else "sqlite"
        yield Scene(name, server, header_of(_KEEPER) if with_redis else {})


def damaged_requests(seed: int, key: dict[str, str]) -> Iterator[tuple[bytes, bool]]:
    """Endless requests as a broken client or proxy sends them, and whether each may lack a part."""
    draw = random.Random(seed)
    json_type = {"Content-Type": "application/json", **key}
    whole = [case.content for case in cases() if case.whole]
    whole += [request_bytes("GET", path, headers=key) for path in _READS]
    while True:
        path, body = draw.choice(list(_BODIES.items()))
        content = json.dumps(body).encode()
        # Damage in transit, or in the program that wrote the body and then counted its bytes.
        if draw.random() < 0.5:
            content = _damaged(draw, content)
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
        chunked = {"Transfer-Encoding": "chunked", **json_type}
        sent = draw.choice(
            (
                request_bytes("POST", path, content, json_type),
                request_bytes("POST", path, chunks, chunked),
                draw.choice(whole),
            )
        )
        broken = draw.random() < 0.5
        yield (_damaged(draw, sent) if broken else sent), broken


def _damaged(draw: random.Random, content: bytes) -> bytes:
    at = draw.randrange(len(content) + 1)
    end = at + draw.choice((1, 1, 2, 8, 100))
    noise = draw.choice((draw.randbytes(draw.choice((1, 2, 8))), draw.choice(_SIGNS)))
    return draw.choice(
        (
            content[:at],
            content[at:],
            content[:at] + noise + content[at:],
            content[:at] + noise + content[end:],
            content[:at] + content[at:end] * draw.choice((2, 50, 2000)) + content[end:],
            content + content,
        )
    )


def send_damaged(to: Scene, seed: int, count: int) -> None:
    """Sends damaged requests, and checks the answers; uvicorn may drop what is no HTTP."""
    for sent, broken in itertools.islice(damaged_requests(seed, to.headers), count):
        # The service would wait for the rest of an incomplete one.
        answer, seconds = exchange(
            to.server.port, sent, "GET", timeout_s=HANG_S, and_no_more=broken
        )
        if isinstance(answer, NoAnswer):
            to.count("damaged", answer.value, seconds)
            if answer is NoAnswer.HANG:
                to.fail("no hang", f"{sent[:600]!a}")
            continue
        to.count("damaged", str(answer.status), seconds)
        method, _, rest = sent.partition(b" ")
        # A damaged head may turn the answer into one without a body.
        if (answer.status, answer.body) == NO_HTTP or method == b"HEAD" or not answer.body:
            continue
        target = rest.partition(b" ")[0].decode("latin-1")
        fault = to.document.fault(to.document.route_of(method.decode("latin-1"), target), answer)
        if fault is not None:
            to.fail(fault, f"{sent[:600]!a}")
    to.check_health()


def send_documented(to: Scene, seed: int) -> int:
    """Sends requests of the document, checks each answer; returns their number."""
    config = {
        "seed": seed,
        "base-url": to.server.url,
        "headers": to.headers,
        "request-timeout": HANG_S,
        "workers": 1,
        "continue-on-failure": True,
        # The validator needs whole answers, not truncated ones.
        "output": {"truncation": {"max-recorded-payload-size": 0}},
        "generation": {
            "max-examples": 40,
            "mode": "all",
            "database": "none",
            "no-shrink": True,
        },
        "phases": {"stateful": {"enabled": True, "max-steps": 5}},
    }
    schema = schemathesis.openapi.from_dict(
        to.document.content, config=SchemathesisConfig.from_dict(config)
    )
    before = to.statuses.total()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _check_scenario(to, event.recorder)
        elif isinstance(event, events.FatalError | events.NonFatalError):
            raise AssertionError(f"schemathesis: {getattr(event, 'value', event)!r}")
    to.check_health()
    return to.statuses.total() - before


def _check_scenario(to: Scene, recorder: ScenarioRecorder) -> None:
    for case_id, interaction in recorder.interactions.items():
        case, response = recorder.cases[case_id].value, interaction.response
        route, method = case.operation.label, case.method.upper()
        if response is None:
            to.count(route, "hang", HANG_S)
            to.fail("no hang", _sent(interaction))
            continue
        to.count(route, str(response.status_code), response.elapsed)
        headers = {name: values[0] for name, values in response.headers.items()}
        answer = Answer(response.status_code, headers, response.content or b"")
        documented = route if f"{method} {case.operation.path}" == route else None
        fault = None if method == "HEAD" else to.document.fault(documented, answer)
        if fault is not None:
            to.fail(fault, f"{_sent(interaction)} got {answer.status} {answer.body[:300]!a}")
        for node in recorder.checks.get(case_id, ()):
            if node.status is not Status.FAILURE or node.name in _LEFT_OUT:
                continue
            if node.name == "negative_data_rejection" and _is_rejected(route, answer):
                continue
            assert node.failure_info is not None
            to.fail(node.name, f"{node.failure_info.failure.message} {_sent(interaction)}")


def _is_rejected(route: str, answer: Answer) -> bool:
    """Whether bad data was refused in a way that schemathesis does not know."""
    if answer.status == 413:
        return True
    # Alpha and delta are rounded to four digits before their bounds are checked.
    if answer.status != 200 or route == "GET /calibrations/{name}/next":
        return answer.status == 200
    body = json.loads(answer.body)
    items = [
        each for name in ("errors", "results", "groups", "scores") for each in body.get(name, ())
    ]
    # An item has its own error, and its neighbors are served.
    return any(each.get("error") for each in items)


def _sent(interaction: Interaction) -> str:
    request = interaction.request
    return f"{request.method} {request.uri[:300]} {(request.body or b'')[:600]!a}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="smallest number")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args()
    began, number = time.monotonic(), given.seed
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        scenes = [
            stack.enter_context(
                scene(Path(stack.enter_context(tempfile.TemporaryDirectory())), with_redis=each)
            )
            for each in (False, True)
        ]
        while sum(each.statuses.total() for each in scenes) < given.requests:
            for each in scenes:
                number += 1
                send_damaged(each, number, send_documented(each, number))
        for each in scenes:
            each.check_end()
            print(each.name, dict(each.statuses), f"slowest {each.slowest:.1f} s", sep=": ")
            print(*each.faults.items(), sep="\n")
    requests = sum(each.statuses.total() for each in scenes)
    print(f"{requests} requests in {time.monotonic() - began:.0f} s, seed {given.seed}")
    sys.exit(any(each.faults for each in scenes))


if __name__ == "__main__":
    main()
