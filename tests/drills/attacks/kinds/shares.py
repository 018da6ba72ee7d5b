"""One caller who asks for so much that the others would get nothing: who competes takes turns."""

import gzip
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_JSON = {"Content-Type": "application/json"}
_MIB = 2**20
# The promise to another key: twice its quiet time, plus this.
_MOST_DELAY_S = 1.0
_QUIET_BATCHES = 20
_SECONDS = 10.0
_BIG = 20_000
_ALPHAS = 32


@dataclass
class _Others:
    """Batches that another key has judged.

    Args:
        size: Comparisons of each batch.
        quiet_s: Median time of a batch before the attack.
        took_s: Time of each batch during the attack.
        statuses: Status of each batch during the attack -> count.
    """

    size: int
    quiet_s: float
    took_s: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def figure(self) -> str:
        """A sentence for the table."""
        answered = self.statuses.get(200, 0)
        return (
            f"{answered} of {len(self.took_s)} batches of another key, slowest "
            f"{max(self.took_s):.2f} s (quiet {self.quiet_s:.2f} s)"
        )

    def check(self, figure: str) -> None:
        """Raises AssertionError with the figure if the other key did not get what is promised."""
        assert set(self.statuses) == {200}, f"refused: {figure}"
        limit_s = 2 * self.quiet_s + _MOST_DELAY_S
        assert max(self.took_s) <= limit_s, f"over {limit_s:.2f} s: {figure}"


@contextmanager
def _another_key(scene: Scene, *, size: int = 100) -> Iterator[tuple[_Others, Callable[[], None]]]:
    """Judges batches with another key: some now, and one with each call of the function."""
    batch = {"comparisons": [pair(number) for number in range(size)]}
    with scene.client(scene.judge_key) as client:

        def judged() -> tuple[int, float]:
            begun = time.perf_counter()
            status = client.post("/judge/batch", json=batch).status_code
            return status, time.perf_counter() - begun

        others = _Others(size, statistics.median(judged()[1] for _ in range(_QUIET_BATCHES)))

        def judge_one() -> None:
            status, took_s = judged()
            others.statuses[status] = others.statuses.get(status, 0) + 1
            others.took_s.append(took_s)

        yield others, judge_one


def _under(
    scene: Scene, key: str, request: Callable[[httpx.Client], httpx.Response], *, at_once: int
) -> str:
    """Sends a request again and again on many connections, and judges with another key."""
    answers: list[tuple[int, float]] = []

    def send() -> None:
        with scene.client(key) as client:
            while True:
                begun = time.perf_counter()
                try:
                    answers.append((request(client).status_code, time.perf_counter() - begun))
                except httpx.TransportError:
                    # The service may close the connection while the client still sends.
                    answers.append((0, time.perf_counter() - begun))
                if time.monotonic() > until:
                    return

    with _another_key(scene) as (others, judge_one), ThreadPoolExecutor(at_once) as senders:
        until = time.monotonic() + _SECONDS
        sent = [senders.submit(send) for _ in range(at_once)]
        while not others.took_s or not all(each.done() for each in sent):
            judge_one()
        for each in sent:
            each.result()
    statuses = sorted({status for status, _ in answers})
    slowest_s = max(took_s for _, took_s in answers)
    figure = (
        f"{len(answers)} x {', '.join(map(str, statuses))} within {slowest_s:.1f} s; "
        f"{others.figure}"
    )
    others.check(figure)
    return figure


def nested_json(scene: Scene, *, lists: int, first: bytes = b"0") -> str:
    """Sends lists that are 400 levels deep, each around a long text with escapes."""
    text = b"[" * 400 + b'"' + rb"\n" * 8_250 + b'"' + b"]" * 400
    body = b'{"id":' + first + b',"comparisons":[' + b",".join([text] * lists) + b"]}"
    return _under(
        scene,
        scene.admin_key,
        lambda client: client.post("/judge/batch", content=body, headers=_JSON),
        at_once=5,
    )


def end_markers(scene: Scene, *, markers: int) -> str:
    """Sends a rendered response that ends with very many markers, through each route."""
    ends = "x" + "</s>" * markers
    group = {"question": "Q?", "responses": [ends, "y"], "alpha": None, "rendered": True}
    reference = {**group, "responses": [ends], "reference": "y"}
    bodies = {
        "/rewards/group": group,
        "/rewards/reference": reference,
        "/rewards/slime": {"prompt": "Q?", "response": ends, "label": "y"},
        "/rewards/openrlhf": {"query": ["Q?" + ends], "prompts": ["Q?"], "labels": ["y"]},
    }
    written = {path: json.dumps(body).encode() for path, body in bodies.items()}
    turns = itertools.cycle(written.items())

    def send(client: httpx.Client) -> httpx.Response:
        path, content = next(turns)
        return client.post(path, content=content, headers=_JSON)

    return _under(scene, scene.admin_key, send, at_once=2)


def calibrate_big(scene: Scene) -> None:
    """Calibrates a large set."""
    large = [{**pair(i), "label": "A" if i % 30 else "B"} for i in range(_BIG)]
    with scene.client(scene.admin_key) as client:
        for first in range(0, _BIG, 1000):
            body = {"calibration": "big", "examples": large[first : first + 1000]}
            client.post("/calibrate", json=body).raise_for_status()
        client.get("/calibrations/big").raise_for_status()


def many_curves(scene: Scene) -> str:
    """Asks for new thresholds of the large set on 60 connections, with a key without a role."""
    numbers = itertools.count()

    def send(client: httpx.Client) -> httpx.Response:
        alphas = [0.02 + next(numbers) % 9_000 / 10_000 for _ in range(_ALPHAS)]
        return client.get("/calibrations/big", params={"alpha": alphas})

    return _under(scene, scene.read_key, send, at_once=60)


def endless_rewards(scene: Scene) -> str:
    """Asks for rewards of groups on 16 connections; they fill all places, and wait for more."""
    texts = [f"quality={number / 7:.6f}" for number in range(30)]
    body = {"question": "Which?", "responses": texts, "alpha": None}
    return _under(
        scene,
        scene.admin_key,
        lambda client: client.post("/rewards/group", json=body),
        at_once=16,
    )


def compressed_bodies(scene: Scene) -> str:
    """Sends 2 MiB that would be 2 GiB without the compression, with and without saying so."""
    bomb = gzip.compress(b" " * (16 * _MIB)) * 120
    assert len(bomb) < 2 * _MIB
    encodings = itertools.cycle([{"Content-Encoding": "gzip"}, {}, {"Content-Encoding": "br"}])

    def send(client: httpx.Client) -> httpx.Response:
        return client.post("/judge", content=bomb, headers={**_JSON, **next(encodings)})

    return _under(scene, scene.admin_key, send, at_once=2)


def racing_writers(scene: Scene) -> str:
    """Adds single examples to one set on 40 connections; only one write at a time can succeed."""
    numbers = itertools.count(10**6)

    def send(client: httpx.Client) -> httpx.Response:
        example = {**pair(next(numbers)), "label": "A"}
        return client.post("/calibrate", json={"calibration": "raced", "examples": [example]})

    return _under(scene, scene.calibrate_key, send, at_once=40)


_LARGE_BODIES: dict[str, Any] = {
    "settings": {"SCOPE_MAX_BODY_BYTES": str(8 * _MIB)},
    "large_requests": True,
}

ATTACKS = (
    Attack(
        "nested-json",
        "5 connections send lists 400 levels deep around texts with escapes, 2 MB",
        lambda scene: nested_json(scene, lists=121),
        large_requests=True,
    ),
    Attack(
        "nested-json-8-mb",
        "the same with 7.8 MB, at a limit of 8 MiB",
        lambda scene: nested_json(scene, lists=470),
        **_LARGE_BODIES,
    ),
    Attack(
        "nested-json-second-parser",
        "the same with 2 MB and half of a surrogate pair, which another parser reads",
        lambda scene: nested_json(scene, lists=121, first=rb'"\ud800"'),
        large_requests=True,
    ),
    Attack(
        "end-markers",
        "2 connections send a rendered response of 520,000 end markers to each reward route",
        lambda scene: end_markers(scene, markers=520_000),
        large_requests=True,
    ),
    Attack(
        "end-markers-8-mb",
        "the same with 2,090,000 end markers, at a limit of 8 MiB",
        lambda scene: end_markers(scene, markers=2_090_000),
        **_LARGE_BODIES,
    ),
    Attack(
        "many-curves",
        f"60 connections of a key without a role ask for {_ALPHAS} new thresholds of a set of "
        f"{_BIG:,}",
        many_curves,
        prepare=calibrate_big,
    ),
    Attack(
        "endless-rewards",
        "16 connections ask for rewards of 435 comparisons; at most 1,024 may be pending",
        endless_rewards,
        settings={"SCOPE_MAX_PENDING": "1024"},
    ),
    Attack(
        "compressed-bodies",
        "2 connections send 2 MiB of gzip that expand to 2 GiB",
        compressed_bodies,
    ),
    Attack(
        "slow-store-curves",
        "`many-curves` on a Redis that takes 50 ms for each answer",
        many_curves,
        prepare=calibrate_big,
        slow_redis=True,
    ),
    Attack(
        "slow-store-rewards",
        "`endless-rewards` on a Redis that takes 50 ms for each answer",
        endless_rewards,
        settings={"SCOPE_MAX_PENDING": "1024"},
        slow_redis=True,
    ),
    Attack(
        "slow-store-writers",
        "40 connections add examples to one set, on a Redis that takes 50 ms for each answer",
        racing_writers,
        slow_redis=True,
    ),
)
