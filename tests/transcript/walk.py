"""Requests to a service with the scripted judge, and the parts of its answers that are fixed."""

import math
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

SCOPE_JUDGE = str(Path(sys.executable).with_name("scope-judge"))
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4)
GUARANTEES = ("marginal", "pac")
# Fields of answers that stay. All others may go.
_FIELDS = """
id verdict preferred reason p_fwd p_rev p_bar uncertainty confidence threshold alpha guarantee
delta risk_level label_mass calibration name version n judge audit rate usage engine_prompts
prompt_tokens words results
code status error
rewards reasons accepted compared groups scores extra_logs answers choice scope
calibrations thresholds coverage added failed updated removed examples digest gap_fwd gap_rev
label fingerprint versions action by digests labelled unlabelled needed complete
audits unchanged unknown expired unknown_ids expired_ids criteria audited errors error_interval
evidence alarm certified open light drawn_at texts question response_a response_b resumed
"""
_FIXED = frozenset(_FIELDS.split())
# The service decides these anew in each run; whether it does is compared.
_VOLATILE = frozenset(["id", "drawn_at", "digest", "fingerprint", "words", "digests"])
_OWN_ID = re.compile(r"pair-\d+|[a-z]+-\d+$")
_START_S = 120.0
_DIGITS = 5


class Walk:
    """Sends requests and keeps the fixed parts of their answers by a name for each.

    Args:
        client: Sends to the service.
        keys: Name of a key -> the key.
    """

    def __init__(self, client: httpx.Client, keys: dict[str, str]) -> None:
        self._client = client
        self._keys = keys
        self.answers: dict[str, Any] = {}

    def send(
        self,
        name: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "analyst",
        content: bytes | None = None,
    ) -> Any:
        """Sends one request and returns the whole answer."""
        headers = {"Authorization": f"Bearer {self._keys[key]}"} if key else {}
        given: dict[str, Any] = {"json": body} if content is None else {"content": content}
        response = self._client.request(method, path, headers=headers, **given)
        answer = response.json() if response.content else None
        if name in self.answers:
            raise ValueError(f"two requests are called {name}")
        self.answers[name] = {"status": response.status_code, "answer": fixed(answer)}
        return answer


def fixed(value: Any, field: str = "") -> Any:
    """The parts of an answer that stay, without what differs between runs."""
    match value:
        case dict() if "code" in value:
            return {"code": value["code"], "status": value["status"]}
        case dict():
            kept = {name: part for name, part in value.items() if name in _FIXED}
            return {name: fixed(part, name) for name, part in kept.items() if part != []}
        case list() if field == "digests":
            return len(value)
        case list():
            return [fixed(part, field) for part in value]
        case float() if math.isfinite(value):
            return float(f"{value:.{_DIGITS}g}")
        case str() if field in _VOLATILE | {"version"} and not _OWN_ID.match(value):
            return "..."
        case _:
            return value


def pair(number: int, gap: float) -> dict[str, str]:
    """A pair whose first response the scripted judge prefers by a gap in logits."""
    question = f"Question {number}?"
    return {"question": question, "response_a": f"quality={gap:.4f}", "response_b": "quality=0"}


def examples(n: int, *, seed: int, quality: float = 1.5) -> list[dict[str, Any]]:
    """Labeled pairs, of which the judge is more often right where it is surer; some are ties."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(n):
        gap = rng.gauss(0.0, 2.0)
        right = rng.random() < 1.0 / (1.0 + math.exp(-abs(gap) * quality))
        label = "tie" if rng.random() < 0.03 else ("A" if (gap > 0) == right else "B")
        rows.append({**pair(1000 * seed + number, gap), "label": label, "id": f"pair-{number}"})
    return rows


@contextmanager
def service(folder: Path) -> Iterator[Walk]:
    """Runs a service with the scripted judge and a key for each role, on SQLite."""
    keys_file = folder / "keys.json"
    roles = {
        "trainer": ["judge"],
        "analyst": ["judge", "calibrate", "admin"],
        "labeler": ["label"],
        "guest": [],
    }
    keys = {}
    for name, of_key in roles.items():
        options = [part for role in of_key for part in ("--role", role)]
        command = [SCOPE_JUDGE, "keys", "add", name, "--file", str(keys_file), *options]
        printed = subprocess.run(command, capture_output=True, text=True, check=True)
        said = re.search(r"scope_\S+", printed.stdout + printed.stderr)
        assert said is not None, printed
        keys[name] = said[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "SCOPE_ENGINE": "scripted",
        "SCOPE_STORE_URL": f"sqlite:///{folder}/store.db",
        "SCOPE_PORT": str(port),
        "SCOPE_API_KEYS_FILE": str(keys_file),
        "SCOPE_AUDIT_RATE": "1",
        "SCOPE_AUDIT_TEXTS": "true",
        "SCOPE_ON_ALARM": "abstain",
        "SCOPE_MAX_PENDING": "800",
        "SCOPE_MAX_BODY_BYTES": "200000",
    }
    inherited = {name: value for name, value in os.environ.items() if name[:6] != "SCOPE_"}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [SCOPE_JUDGE, "serve"], env={**inherited, **settings}, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process)
        with httpx.Client(base_url=url, timeout=60.0) as client:
            yield Walk(client, keys)
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the service does not become ready")
