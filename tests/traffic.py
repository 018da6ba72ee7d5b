"""Checked traffic on one service: judgments, posts of examples and readiness, all at once.

Each labeled pair follows from its number and one client posts them in order, so a set with n
examples has the first n of them: its threshold is known, whatever breaks in between.
"""

import asyncio
import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Self

import httpx
import numpy as np

from app.core.preference import preference_from_gaps
from app.core.thresholds import ThresholdCurve
from tests.unit.api.keyring import header_of

ALPHA = 0.1
BATCH = 8
NAME = "traffic"
_JUDGMENTS_PER_S = 25.0
_PAUSE_S = 0.1
# Enough labels for a feasible alpha.
_FIRST = range(40)


class Answer(NamedTuple):
    """The answer to one request.

    Args:
        status: HTTP status; 0 without an answer.
        headers: Its headers.
        body: Parsed JSON body; its text if it is not JSON.
        began: When the request was sent, by the loop's clock.
        trouble: Why there was no answer: "refused", "cut" or "silent".
    """

    status: int
    headers: httpx.Headers
    body: Any
    began: float
    trouble: str = ""

    @property
    def outcome(self) -> str:
        """A short name of the outcome, for counting."""
        if self.trouble:
            return f"no answer ({self.trouble})"
        told = self.body if isinstance(self.body, dict) else {}
        if self.status >= 400:
            return f"{self.status} {told.get('code', 'without a code')}"
        if told.get("failed"):
            return f"{self.status} examples failed"
        if "scope-calibration-age" in self.headers:
            return f"{self.status} stale"
        return f"{self.status} {told['status']}" if "status" in told else f"{self.status}"


class Client:
    """Sends each request once, with one key; a missing answer is an `Answer`, too."""

    def __init__(self, port: int) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers=header_of("fleet"),
            timeout=20.0,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=20.0),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Sends one request with a body of JSON."""
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._http.request(method, path, json=body)
        except httpx.TransportError as exc:
            trouble = "silent" if isinstance(exc, httpx.TimeoutException) else "cut"
            trouble = "refused" if isinstance(exc, httpx.ConnectError) else trouble
            return Answer(0, httpx.Headers(), None, began, trouble)
        try:
            content = answer.json()
        except ValueError:
            content = answer.text
        return Answer(answer.status_code, answer.headers, content, began)


def figure_in(metrics: str, name: str) -> float:
    """Sum of a metric's samples, whatever their labels."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
    )


def _share(number: int, salt: int) -> float:
    """A pseudo-random number in [0, 1) that is always the same."""
    mixed = (number * 2654435761 + salt * 40503) % 2**32
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) % 2**32
    return (mixed ^ (mixed >> 13)) % 2**24 / 2**24


def _gap(number: int) -> float:
    return round(8.0 * _share(number, 1) - 4.0, 6)


def example(set_name: str, number: int) -> dict[str, Any]:
    """A labeled pair that differs from those of other numbers and of other sets."""
    # Right more often than the judge is sure: alpha = 0.1 is feasible, and not for everything.
    is_a = _share(number, 2) < 1 / (1 + math.exp(-1.5 * _gap(number)))
    return {
        "question": f"example {number} of {set_name}",
        "response_a": f"quality={_gap(number):.6f}",
        "response_b": "quality=0.000000",
        "label": "A" if is_a else "B",
    }


def batches_of(set_name: str, batches: Iterable[int]) -> dict[str, Any]:
    """The body of a post of numbered batches."""
    numbers = (range(batch * BATCH, (batch + 1) * BATCH) for batch in batches)
    examples = [example(set_name, number) for number in itertools.chain(*numbers)]
    return {"calibration": set_name, "examples": examples}


@lru_cache(maxsize=4096)
def threshold_of(n: int) -> float | None:
    """lambda_hat of the first n examples under the scripted engine; None if it is infeasible."""
    gaps = np.array([_gap(number) for number in range(n)])
    wrong = [(gap > 0) != (example("", i)["label"] == "A") for i, gap in enumerate(gaps)]
    threshold = ThresholdCurve.fit(preference_from_gaps(gaps, gaps).entropy, wrong).threshold(ALPHA)
    return None if threshold == -math.inf else threshold


def fault_of(judgment: dict[str, Any], gap: float) -> str | None:
    """The fault of a judgment of a pair with this gap in both orders; None if there is none."""
    n, threshold = judgment["calibration"]["n"], judgment["threshold"]
    expected = threshold_of(n)
    is_same = (threshold is None) == (expected is None)
    if n % BATCH or not is_same or not math.isclose(threshold or 0, expected or 0, rel_tol=1e-9):
        return f"threshold {threshold} of {n} examples, which is {expected}"
    p = 1 / (1 + math.exp(-gap))
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    if abs(judgment["p_bar"] - p) > 1e-9 or abs(judgment["uncertainty"] - entropy) > 1e-6:
        return f"p_bar {judgment['p_bar']} and uncertainty {judgment['uncertainty']} of gap {gap}"
    implied: tuple[str, str | None] = ("A" if gap > 0 else "B", None)
    if threshold is None or entropy > threshold:
        implied = ("abstain", "infeasible" if threshold is None else "uncertain")
    said = (judgment["verdict"], judgment["reason"])
    return None if said == implied else f"{said} with uncertainty {entropy} at {threshold}"


def pair(number: int) -> tuple[dict[str, str], float]:
    """A pair to judge, and its gap."""
    gap = round(0.11 * (number % 64 - 32) + 0.05, 6)
    question = f"Which answer is the better one, of pair {number % 64}?"
    return {
        "question": question,
        "response_a": f"One with quality={gap:.6f}.",
        "response_b": "One with quality=0.000000.",
    }, gap


class Traffic:
    """The clients of one service, and their answers.

    Args:
        port: Port that the clients connect to.
        batch_clients: Number of clients that judge batches, one after the other.
    """

    def __init__(self, port: int, *, batch_clients: int = 0) -> None:
        self._client = Client(port)
        self._batch_clients = batch_clients
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._next = len(_FIRST)
        self.answers: list[tuple[str, Answer]] = []
        self.wrong: list[str] = []
        self.verdicts = 0

    @property
    def examples(self) -> int:
        """Number of examples that the service has acknowledged."""
        return self._next * BATCH

    async def __aenter__(self) -> Self:
        await self._post(_FIRST)
        await asyncio.gather(*(self._judge([number]) for number in range(64)))
        self.answers.clear()
        clients = [self._judge_steadily(), self._calibrate_steadily(), self._ask_steadily()]
        clients += [self._judge_batches() for _ in range(self._batch_clients)]
        self._tasks = [asyncio.ensure_future(client) for client in clients]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.__aexit__()

    async def stop(self) -> None:
        """Stops the clients when their requests in flight are answered; raises their errors."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def until_healthy(self) -> None:
        """Waits until requests that begin from now on succeed."""
        now = asyncio.get_running_loop().time()
        wanted = {("readyz", "200 ready"), ("calibrate", "200")}
        while not wanted <= {
            (kind, answer.outcome) for kind, answer in self.answers if answer.began >= now
        }:
            for task in self._tasks:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.02)

    async def check_set(self) -> None:
        """Posts everything again: an example that is added now was lost, one more was doubled."""
        for start in range(0, self._next, BATCH):
            body = batches_of(NAME, range(start, min(start + BATCH, self._next)))
            answer = await self._client.ask("POST", "/calibrate", body)
            if answer.status != 200 or answer.body["added"]:
                self.wrong.append(f"posting {start} again got {answer.outcome} {answer.body}")
        found = await self._client.ask("GET", f"/calibrations/{NAME}")
        if found.status != 200 or found.body["n"] != self.examples:
            self.wrong.append(f"of {self.examples} examples: {found.outcome} {found.body}")

    async def _ask(self, kind: str, method: str, body: object = None) -> Answer:
        answer = await self._client.ask(method, f"/{kind}", body)
        self.answers.append((kind, answer))
        if answer.status in (429, 503, 504) and "retry-after" not in answer.headers:
            self.wrong.append(f"{kind}: {answer.outcome} without Retry-After")
        return answer

    async def _judge(self, numbers: Iterable[int], kind: str = "judge") -> None:
        pairs = [pair(number) for number in numbers]
        fields = [each for each, _ in pairs]
        body = {"comparisons": fields} if kind == "judge/batch" else fields[0]
        answer = await self._ask(kind, "POST", {**body, "alpha": ALPHA, "calibration": NAME})
        if answer.status != 200:
            return
        results = answer.body["results"] if kind == "judge/batch" else [answer.body]
        for (asked, gap), result in zip(pairs, results, strict=True):
            fault = str(result["error"]) if "error" in result else fault_of(result, gap)
            self.verdicts += 1
            if fault:
                self.wrong.append(f"a judgment of {asked}: {fault}")

    async def _post(self, batches: Iterable[int]) -> None:
        """Posts new batches again and again until they are acknowledged."""
        body, attempts = batches_of(NAME, batches), 0
        while True:
            answer = await self._ask("calibrate", "POST", body)
            attempts += 1
            # Examples that the engine failed on are listed in the answer, and are not in the set.
            if answer.status == 200 and not answer.body["failed"]:
                break
            await asyncio.sleep(_PAUSE_S)
        added, size = answer.body["added"], len(body["examples"])
        if added != size and (attempts == 1 or added):
            self.wrong.append(f"{added} of {size} examples were added after {attempts} attempts")

    async def _judge_steadily(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as under_way:
            for number in itertools.count():
                # Scheduled by the clock: a service that hangs gets as many requests.
                await asyncio.sleep(max(0.0, began + number / _JUDGMENTS_PER_S - loop.time()))
                if self._stopping.is_set():
                    break
                under_way.create_task(self._judge([number]))

    async def _judge_batches(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                break
            await self._judge(range(16 * number, 16 * (number + 1)), "judge/batch")
            # Clients must leave the services some of the processor.
            await asyncio.sleep(_PAUSE_S / 2)

    async def _calibrate_steadily(self) -> None:
        while not self._stopping.is_set():
            await self._post([self._next])
            self._next += 1
            await asyncio.sleep(_PAUSE_S)

    async def _ask_steadily(self) -> None:
        while not self._stopping.is_set():
            await self._ask("readyz", "GET")
            await asyncio.sleep(_PAUSE_S)
