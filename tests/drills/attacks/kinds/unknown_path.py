"""Bodies to a path that does not exist, from a read-only key."""

import socket
import time

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_CONNECTIONS = 32
_SECONDS = 10.0
_ANNOUNCED = 8 * 2**20 - 1


def bodies_to_nowhere(scene: Scene) -> str:
    """Sends almost complete bodies, and asks for judgments meanwhile."""
    head = (
        f"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {scene.read_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {_ANNOUNCED}\r\n\r\n"
    ).encode()
    sockets = [socket.create_connection(("127.0.0.1", scene.port)) for _ in range(_CONNECTIONS)]
    part, deadline = b" " * 65536, time.monotonic() + _SECONDS
    unsent = dict.fromkeys(sockets, _ANNOUNCED - 1)
    for each in sockets:
        each.settimeout(1.0)
        each.sendall(head)
    while unsent and time.monotonic() < deadline:
        for each in list(unsent):
            try:
                unsent[each] -= each.send(part[: unsent[each]])
            except OSError:
                del unsent[each]
                continue
            if not unsent[each]:
                del unsent[each]
    statuses: dict[int, int] = {}
    with scene.client(scene.judge_key) as client:
        while time.monotonic() < deadline:
            status = client.post("/judge", json=pair(1)).status_code
            statuses[status] = statuses.get(status, 0) + 1
            time.sleep(0.1)
    for each in sockets:
        each.close()
    counts = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    return f"judgments meanwhile: {counts}"


ATTACKS = (
    Attack(
        "bodies-to-nowhere",
        "32 connections with a read-only key send almost 8 MB each to a path that does not exist",
        bodies_to_nowhere,
        settings={"SCOPE_TIMEOUT_S": "30"},
    ),
)
