"""Sound requests whose bytes are damaged at random, as a broken client or proxy would send them."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.drills.fuzzing.promises import NO_HTTP, Answer
from tests.drills.fuzzing.scene import HANG_S, Scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.fuzzing.wire import Connection, NoAnswer, request_bytes
from tests.unit.api.corpus import cases
from tests.unit.api.problems import comparison, examples

Headers = tuple[tuple[bytes, bytes], ...]

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


def requests(seed: int, key: Headers = ()) -> Iterator[tuple[bytes, bool]]:
    """Yields endless requests, and whether each may be incomplete; an equal seed gives the same.

    Args:
        seed: Any integer.
        key: Headers with a key, for a service that has keys.
    """
    draw = random.Random(seed)
    json_type = ((b"Content-Type", b"application/json"), *key)
    chunked = ((b"Transfer-Encoding", b"chunked"), *json_type)
    whole = [case.content for case in cases() if case.whole]
    whole += [request_bytes("GET", path.encode(), headers=key) for path in _READS]
    while True:
        path, body = draw.choice(list(_BODIES.items()))
        content = json.dumps(body).encode()
        # Damage in transit, or in the program that wrote the body and then counted its bytes.
        if draw.random() < 0.5:
            content = _damaged(draw, content)
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
        sent = draw.choice(
            (
                request_bytes("POST", path.encode(), content, headers=json_type),
                request_bytes("POST", path.encode(), chunks, headers=chunked, length=b""),
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


def send(
    scene: Scene,
    damaged: Iterable[tuple[bytes, bool]],
    tally: Tally,
    on_request: Callable[[], None],
) -> None:
    """Sends each request on a connection of its own, and checks the answer, if one comes."""
    for sent, incomplete in damaged:
        connection = Connection(scene.server.port, timeout_s=HANG_S)
        # The service would wait for the rest of an incomplete one.
        connection.send(sent, and_no_more=incomplete)
        ended = connection.end("GET")
        answer = ended.answer
        status = str(answer.status) if isinstance(answer, Answer) else answer.value
        tally.count("damaged bytes", status, ended.seconds)
        fault = _fault(scene, sent, answer)
        if fault is None:
            tally.passed("damaged bytes are answered or refused")
        else:
            tally.failed(fault, f"{scene.name}: {sent[:600]!a}")
        on_request()
    scene.note_health(tally)


def _fault(scene: Scene, sent: bytes, answer: Answer | NoAnswer) -> str | None:
    """What is wrong with an answer; uvicorn may refuse or drop whatever is no HTTP."""
    if not isinstance(answer, Answer):
        return "no hang" if answer is NoAnswer.HANG else None
    if (answer.status, answer.body) == NO_HTTP:
        return None
    if answer.status >= 500:
        return f"no server error: {answer.status}"
    method, _, rest = sent.partition(b" ")
    # A damaged head may turn the answer into one without a body.
    if method == b"HEAD" or not answer.body:
        return None
    route = scene.document.route_of(method.decode("latin-1"), rest.partition(b" ")[0])
    faults = scene.document.faults(route, answer)
    return faults[0] if faults else None
