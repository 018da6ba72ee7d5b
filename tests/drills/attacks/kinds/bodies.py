"""Bodies that use up the memory budget for bodies: slow ones, and many from one key."""

import time

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.drills.attacks.sockets import closed, connected, flood, trickle

_MIB = 2**20


def _head(scene: Scene, key: str, path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def slow_bodies(scene: Scene) -> str:
    """Sends a byte of a body every half second on many connections."""
    head = _head(scene, scene.calibrate_key, "/calibrate", _MIB)
    with connected(scene.port, 300) as sockets:
        flood(sockets, [head + b" " * 8_000] * len(sockets), seconds=5)
        trickle(sockets, b" ", every_s=0.5, seconds=12)
        gone = closed(sockets)
    return f"{gone} of {len(sockets)} connections were ended within 17 s"


def one_key_fills_the_room(scene: Scene) -> str:
    """Sends bodies that are almost complete with one key, and judges batches with another."""
    # The smaller bodies use up the budget that the larger ones leave.
    sizes = [_MIB] * 12 + [65536] * 140 + [2048] * 100
    bodies = [
        _head(scene, scene.calibrate_key, "/calibrate", size) + b" " * (size - 1) for size in sizes
    ]
    batch = {"comparisons": [pair(number) for number in range(64)]}
    statuses: dict[int, int] = {}
    with connected(scene.port, len(sizes)) as sockets, scene.client(scene.judge_key) as client:
        for first, last in ((0, 12), (12, 152), (152, len(sizes))):
            flood(sockets[first:last], bodies[first:last], seconds=2)
            time.sleep(0.5)  # refused bodies give their budget back
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            status = client.post("/judge/batch", json=batch).status_code
            statuses[status] = statuses.get(status, 0) + 1
            time.sleep(0.1)
    assert set(statuses) == {200}, f"batches with another key: {statuses}"
    return f"batches with another key: {statuses[200]} of {statuses[200]} judged"


ATTACKS = (
    Attack(
        "slow-bodies",
        "300 connections with a key send a byte of a body every half second",
        slow_bodies,
    ),
    Attack(
        "one-key-fills-the-room",
        "one key sends bodies without their last byte, three times what all keys may have",
        one_key_fills_the_room,
        settings={
            "SCOPE_MAX_BODY_BYTES": str(_MIB),
            "SCOPE_MAX_PENDING_BYTES": str(4 * _MIB),
            "SCOPE_TIMEOUT_S": "20",
        },
    ),
)
