"""A service whose answers are planned: a real one cannot be made to fail at a given request."""

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from scope_judge.exchange import Timing

Served = TypeVar("Served", bound=ThreadingHTTPServer)

INFO: dict[str, Any] = {
    **dict.fromkeys(("commit", "template", "head_dtype", "decision_server", "runtime")),
    "version": "9",
    "judge": "planned",
    "fingerprint": "f",
    "kind": "chat model",
    "model": "m",
    "dtype": "float64",
    "label_tokens": [0, 1],
    "prefill": "",
    "default_alpha": 0.1,
    "default_guarantee": "marginal",
    "default_delta": 0.1,
    "min_label_mass": 0.0,
    "on_alarm": "report",
    "audit_rate": 0.0,
    "limits": {"max_batch": 1000, "max_body_bytes": 2**20, "max_prompt_tokens": 100},
}
USAGE = {"engine_prompts": 2, "prompt_tokens": 40}


def judgment(item: dict[str, Any]) -> dict[str, Any]:
    """A judgment that names the pair in p_bar, so that mixed up results would show."""
    return {
        "id": item.get("id"),
        "verdict": "A",
        "preferred": "A",
        "reason": None,
        "p_fwd": 0.9,
        "p_rev": 0.9,
        "p_bar": float(item["question"]) if item.get("question", "").isdecimal() else 0.9,
        "uncertainty": 0.3,
        "confidence": 0.9,
        "threshold": 0.5,
        "alpha": 0.1,
        "guarantee": "marginal",
        "delta": None,
        "risk_level": 0.05,
        "label_mass": 0.99,
        "calibration": {"name": "default", "version": 1, "n": 400},
        "judge": "planned",
        **dict.fromkeys(("audit", "temperature", "decided_by", "rungs", "explanation")),
        "orders": 2,
        "cached": False,
        "bounded": False,
    }


def rewards(group: dict[str, Any]) -> dict[str, Any]:
    """Rewards of a group: the first response wins, the last has no accepted comparison."""
    n = len(group["responses"])
    return {
        "rewards": [1.0] * (n - 1) + [None],
        "reasons": [None] * (n - 1) + ["abstained"],
        "accepted": [n - 1] * (n - 1) + [0],
        "compared": [n - 1] * n,
        "ties": [0] * n,
        "errors": [],
        "comparisons": None,
    }


def problem(status: int, code: str, **headers: str) -> "Act":
    """Answers with an error of the service."""
    content = {"type": "x", "title": "T", "status": status, "code": code, "detail": f"no: {code}"}
    return lambda handler: handler.send(status, json.dumps(content).encode(), headers)


def page(status: int, text: bytes = b"<html>Welcome</html>", **headers: str) -> "Act":
    """Answers as some other web server."""
    return lambda handler: handler.send(status, text, headers)


def hang_up(handler: "Handler") -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


def reset_in_body(handler: "Handler") -> None:
    """Sends half of an answer and resets the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"results": [')
    handler.wfile.flush()
    # SO_LINGER with 0 s: closing sends a reset.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


class Handler(BaseHTTPRequestHandler):
    server: "PlannedService"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_DELETE(self) -> None:
        self.answer({})

    def answer(self, body: dict[str, Any]) -> None:
        planned = self.server.note(self.path, body, dict(self.headers.items()))
        if planned is not None:
            planned(self)
        elif self.path == "/info":
            info = {**INFO, **self.server.info, "limits": self.server.limits}
            self.send(200, json.dumps(info).encode())
        else:
            self.server.rule(self, body)

    def send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def as_usual(self, body: dict[str, Any]) -> None:
        """Answers as a healthy service does."""
        answer: dict[str, Any]
        if "comparisons" in body and isinstance(body["comparisons"], list):
            answer = {"results": [judgment(item) for item in body["comparisons"]]}
        elif "groups" in body:
            answer = {"groups": [rewards(group) for group in body["groups"]]}
        elif "responses" in body:
            answer = rewards(body)
        else:
            answer = {**judgment(body), "words": "A.", "usage": USAGE}
        self.send(200, json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


Act = Callable[[Handler], None]


class PlannedService(ThreadingHTTPServer):
    """Answers requests to other paths than /info with the acts, and then by the rule."""

    daemon_threads = True

    def __init__(
        self,
        acts: Sequence[Act] = (),
        rule: Callable[[Handler, dict[str, Any]], None] = Handler.as_usual,
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rule = rule
        self.limits = dict(INFO["limits"])
        self.info: dict[str, Any] = {}
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._acts = deque(acts)
        self._lock = threading.Lock()

    def note(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Act | None:
        with self._lock:
            self.headers.append(headers)
            if path == "/info":
                return None
            self.bodies.append(body)
            return self._acts.popleft() if self._acts else None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def sizes(self) -> list[int]:
        """The number of comparisons of each batch, in the order of arrival."""
        return [len(body["comparisons"]) for body in self.bodies]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients leave on purpose."""


@contextmanager
def serving(service: Served) -> Iterator[Served]:
    """Runs a server in a thread."""
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


class Clock:
    """Time that passes only in pauses, which it notes."""

    def __init__(self, *, chance: float = 0.5) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []
        self.timing = Timing(lambda: self.seconds, lambda: chance)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
