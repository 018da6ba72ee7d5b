"""Requests that the OpenAPI document rules out: mutations, raw bodies, broken HTTP, odd paths."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from tests.drills.fuzzing.material import (
    HALF,
    JSON_TEXT,
    TEXTS,
    bodies_of_bytes,
    mangled,
    mutated,
    sound_bodies,
    written,
)
from tests.drills.fuzzing.wire import request_bytes

# Allowed besides an answer of the service: the connection closes, or uvicorn refuses the bytes.
Allowed = Literal["closed", "no_http"]
Headers = tuple[tuple[bytes, bytes], ...]

BODY_ROUTES: dict[str, bytes] = {
    "POST /judge": b"/judge",
    "POST /judge/batch": b"/judge/batch",
    "POST /rewards/group": b"/rewards/group",
    "POST /rewards/groups": b"/rewards/groups",
    "POST /rewards/reference": b"/rewards/reference",
    "POST /rewards/openrlhf": b"/rewards/openrlhf?alpha=null",
    "POST /v1/systemone": b"/v1/systemone",
    "POST /v1/decisions": b"/v1/decisions",
    "POST /calibrate": b"/calibrate",
    "POST /calibrate/scores": b"/calibrate/scores",
    "POST /calibrations/{name}/examples": b"/calibrations/fuzz/examples",
    "POST /calibrations/{name}/pool": b"/calibrations/fuzz/pool",
    "POST /calibrations/{name}/rollback": b"/calibrations/fuzz/rollback",
    "POST /calibrations/{name}/absorb": b"/calibrations/fuzz/absorb",
    "POST /calibrations/{name}/resume": b"/calibrations/fuzz/resume",
    "POST /audits/labels": b"/audits/labels",
}
_JSON: Headers = ((b"Content-Type", JSON_TEXT.encode()),)
_CONTENT_TYPES: tuple[bytes, ...] = (
    *[JSON_TEXT.encode()] * 6,
    b"text/plain",
    b"application/x-www-form-urlencoded",
    b"",
    b"application/json; charset=utf-16",
    b"application/vnd.api+json",
    b"\xff",
    b"json/",
)
_BODIES = bodies_of_bytes()
# A body in more chunks than these, with fewer bytes in each, ends its connection.
_FREE_CHUNKS = 1024
_LEAST_CHUNK_BYTES = 64


class Attempt(NamedTuple):
    """One request to send.

    Args:
        family: Kind of the request, for the table.
        route: Its route in the document; None if it is meant for none.
        method: HTTP method that the answer belongs to.
        content: Bytes of the whole request.
        allowed: Other outcomes that are allowed besides an answer of the service.
        and_no_more: Whether to shut down the sending side after the request.
    """

    family: str
    route: str | None
    method: str
    content: bytes
    allowed: frozenset[Allowed] = frozenset()
    and_no_more: bool = False


Family = Callable[[random.Random, Headers], Attempt]
_BROKEN: frozenset[Allowed] = frozenset({"closed", "no_http"})


def _posted(
    family: str,
    route: str,
    content: bytes,
    headers: Headers,
    *,
    length: bytes | None = None,
    allowed: frozenset[Allowed] = frozenset(),
    and_no_more: bool = False,
) -> Attempt:
    sent = request_bytes("POST", BODY_ROUTES[route], content, headers=headers, length=length)
    return Attempt(family, route, "POST", sent, allowed, and_no_more)


def _sound_body(draw: random.Random) -> tuple[str, Any]:
    """A route and a valid body for it."""
    return draw.choice(list(sound_bodies(draw).items()))


def mutation(draw: random.Random, key: Headers) -> Attempt:
    """A valid body with up to three changes in its structure."""
    route, body = _sound_body(draw)
    return _posted("mutated JSON", route, written(draw, mutated(draw, body)), _JSON + key)


def mangled_body(draw: random.Random, key: Headers) -> Attempt:
    """A valid body with some of its bytes changed, cut or repeated."""
    route, body = _sound_body(draw)
    content = written(draw, body)
    for _ in range(draw.choice((1, 1, 2))):
        content = mangled(draw, content)
    return _posted("mangled bytes", route, content, _JSON + key)


def raw_body(draw: random.Random, key: Headers) -> Attempt:
    """A body of the catalogue with any content type, for any route that takes a body."""
    route = draw.choice(list(BODY_ROUTES))
    # Long bodies cost as much as a hundred others.
    name = draw.choice(sorted(_BODIES))
    if len(_BODIES[name]) > 500_000 and draw.random() < 0.9:
        name = "deep list"
    headers = ((b"Content-Type", draw.choice(_CONTENT_TYPES)),)
    # The connection may be reset before a client that sends 10 MB reads the answer.
    allowed: frozenset[Allowed] = frozenset({"closed"} if len(_BODIES[name]) > 2**23 else ())
    return _posted("raw body", route, _BODIES[name], headers + key, allowed=allowed)


def wrong_length(draw: random.Random, key: Headers) -> Attempt:
    """A body that is shorter or longer than its Content-Length, or with an invalid one."""
    route, body = _sound_body(draw)
    content = written(draw, body)
    n = len(content)
    announced = draw.choice(
        (n - 1, n - 5, 0, n + 1, n + 1000, 2**31, 2**63, 2**64, 10**30, -1, "", "x", "+5", "0x10")
    )
    length = draw.choice((f"{announced}", f" {announced} ", f"{announced}, {n}")).encode()
    return _posted(
        "wrong length",
        route,
        content,
        _JSON + key,
        length=length,
        allowed=_BROKEN,
        and_no_more=True,
    )


def chunked(draw: random.Random, key: Headers) -> Attempt:
    """Chunks: valid, cut, too long, endless, or with an invalid size."""
    route, body = _sound_body(draw)
    content = written(draw, body)
    size = draw.choice((1, 7, 1000))
    parts = [content[i : i + size] for i in range(0, len(content), size)]
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts] + [b"0\r\n\r\n"]
    what = draw.choice(("sound", "no end", "bad size", "huge size", "negative", "noise", "both"))
    at = draw.randrange(len(chunks))
    if what == "no end":
        del chunks[at:]
    elif what in ("bad size", "huge size", "negative"):
        sizes = {"bad size": b"zz", "huge size": b"f" * 20, "negative": b"-5"}
        chunks[at] = sizes[what] + b"\r\n" + content + b"\r\n"
    elif what == "noise":
        chunks[at] = mangled(draw, chunks[at])
    is_tiny = len(parts) > _FREE_CHUNKS and size < _LEAST_CHUNK_BYTES
    allowed = _BROKEN if what != "sound" or is_tiny else frozenset()
    # A valid request ends by itself; the service would wait for the rest of a broken one.
    return _posted(
        "chunked",
        route,
        b"".join(chunks),
        ((b"Transfer-Encoding", b"chunked"), *_JSON, *key),
        length=b"5" if what == "both" else b"",
        allowed=allowed,
        and_no_more=what != "sound",
    )


def odd_headers(draw: random.Random, key: Headers) -> Attempt:
    """Headers that are huge, many, duplicate, or unknown."""
    route, body = _sound_body(draw)
    text = draw.choice(TEXTS).encode("utf-8", "replace")
    odd: Headers = draw.choice(
        (
            ((b"X-Long", b"x" * 60_000),),
            tuple((b"X-%d" % i, b"y") for i in range(500)),
            ((b"X-" + b"n" * 5000, b"y"),),
            ((b"Content-Length", b"3"),),
            ((b"Content-Type", b"text/plain"),),
            ((b"Content-Encoding", b"gzip"),),
            ((b"Expect", b"100-continue"),),
            ((b"Expect", b"200-maybe"),),
            ((b"Connection", b"upgrade"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAMA")),
            ((b"X-Forwarded-For", b"::1, evil"), (b"X-Forwarded-Proto", b"gopher")),
            ((b"Host", b"other"),),
            ((b"Accept", b"text/html"), (b"Accept-Encoding", b"br;q=nan")),
            ((b"Range", b"bytes=0-1"), (b"If-None-Match", b"*")),
            ((b"Cookie", b"=;=;" * 500),),
            ((b"Bad Name", b"x"),),
            ((b"X-Text", text),),
            ((b"X-Null", b"\x00\x01\x7f\xff"),),
        )
    )
    content = written(draw, body)
    return _posted("odd headers", route, content, _JSON + odd + key, allowed=_BROKEN)


def odd_key(draw: random.Random, key: Headers) -> Attempt:
    """Keys that are invalid, duplicate, or in another scheme."""
    values: tuple[bytes, ...] = (
        b"",
        b"Bearer",
        b"Bearer ",
        b"bearer x",
        b"Basic YTpi",
        b"Bearer " + b"x" * 50_000,
        b"Bearer \xff\xfe",
        b"Bearer a b",
        b"\x01",
        b"Bearer \xf0\x9f\x98\x80",
        b"Digest x=y",
    )
    odd = tuple((b"Authorization", value) for value in draw.sample(values, draw.choice((1, 1, 2))))
    if key and draw.random() < 0.3:
        odd += ((b"Authorization", key[0][1] + draw.choice((b"x", b" ", b"\t", b""))),)
    method, target, route = draw.choice(
        (
            ("GET", b"/info", "GET /info"),
            ("GET", b"/calibrations", "GET /calibrations"),
            ("DELETE", b"/calibrations/fuzz", "DELETE /calibrations/{name}"),
            ("POST", b"/judge", "POST /judge"),
        )
    )
    return Attempt("odd key", route, method, request_bytes(method, target, headers=odd), _BROKEN)


_SEGMENTS: tuple[bytes, ...] = (
    b"%00",
    b"..",
    b".",
    b"%2e%2e",
    b"%2f",
    b"%2F..%2F",
    b"%5c",
    b"%",
    b"%zz",
    b"%C0%AF",
    b"%FF",
    b"%ED%A0%80",
    b"%F0%9F%98%80",
    b"",
    b"a" * 5000,
    b"judge",
    b"calibrations",
    b"healthz",
    b"info;x=y",
    b"a%0d%0ab",
    b"%20",
    b"*",
    b"~",
    b"{name}",
    b"versions",
    b"rollback",
    b"fuzz",
    b"docs",
    b"openapi.json",
    b"static",
    b"\xc3\xa9",
    b"<script>",
    b'"',
    b"metrics",
)
_QUERIES: tuple[bytes, ...] = (
    b"",
    b"",
    b"?",
    b"?a=b",
    b"?limit=0",
    b"?limit=%00",
    b"?limit=1&limit=x",
    b"?dry_run=true",
    b"?dry_run=\xff&dry_run=2",
    b"?before=-1",
    b"?before=1e5",
    b"?limit=" + b"9" * 5000,
    b"?%ff=%ff",
    b"?=&&=",
    b"#x",
    b"?a=" * 300,
)
_METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "QUERY",
    "FOO",
    "get",
    "PRI",
    "G\x00T",
    "",
    "É",
    "A" * 300,
    "M-SEARCH",
    "SOURCE",
)


def odd_path(draw: random.Random, key: Headers) -> Attempt:
    """Unusual paths, queries and methods."""
    method = draw.choice(_METHODS) if draw.random() < 0.5 else draw.choice(_METHODS[:7])
    segments = [draw.choice(_SEGMENTS) for _ in range(draw.choice((1, 1, 2, 3)))]
    if draw.random() < 0.4:
        segments.insert(0, b"calibrations")
    lead = draw.choice((b"/",) * 8 + (b"", b"//", b"http://judge/", b"\\"))
    target = lead + b"/".join(segments) + draw.choice(_QUERIES)
    return Attempt("odd path", None, method, request_bytes(method, target, headers=key), _BROKEN)


def no_http(draw: random.Random, key: Headers) -> Attempt:
    """Bytes that are not HTTP, or only begin like it."""
    sound = request_bytes("GET", b"/info", headers=key)
    content = draw.choice(
        (
            draw.randbytes(draw.choice((1, 20, 3000))) + b"\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(100),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /info\r\n\r\n",
            b"GET /info HTTP/9.9\r\n\r\n",
            b"GET /info HTTP/0.9\r\nHost: x\r\n\r\n",
            b"GET  /info HTTP/1.1\r\n\r\n",
            b"GET /info HTTP/1.1\nHost: x\nConnection: close\n\n",
            b"\r\n\r\n" + sound,
            sound.replace(b"\r\n", b"\n"),
            sound.replace(b": ", b":\x0b"),
            mangled(draw, sound),
            mangled(draw, sound),
        )
    )
    return Attempt("broken HTTP", None, "GET", content, _BROKEN, and_no_more=True)


def upgrade(draw: random.Random, key: Headers) -> Attempt:
    """WebSocket upgrades at paths without WebSockets."""
    headers: Headers = (
        (b"Connection", b"Upgrade"),
        (b"Upgrade", draw.choice((b"websocket", b"WebSocket", b"tls/1.0"))),
        (b"Sec-WebSocket-Version", draw.choice((b"13", b"0"))),
        (b"Sec-WebSocket-Key", draw.choice((b"dGhlIHNhbXBsZSBub25jZQ==", b"x"))),
    )
    target = draw.choice((b"/judge", b"/info", b"/", b"/calibrations/fuzz"))
    sent = request_bytes("GET", target, headers=headers + key, length=b"")
    return Attempt("upgrade", None, "GET", sent, _BROKEN, and_no_more=True)


def sound(draw: random.Random, key: Headers) -> Attempt:
    """Valid requests as usual clients send them, so that the store has content to break."""
    reads = ("/calibrations", "/calibrations/fuzz", "/calibrations/fuzz/versions?limit=5", "/info")
    if draw.random() < 0.3:
        path = draw.choice(reads)
        route = "GET " + path.replace("/fuzz", "/{name}").partition("?")[0]
        return Attempt("sound", route, "GET", request_bytes("GET", path.encode(), headers=key))
    route, body = _sound_body(draw)
    return _posted("sound", route, json.dumps(body).encode(), _JSON + key)


FAMILIES: dict[Family, int] = {
    mutation: 40,
    mangled_body: 15,
    raw_body: 10,
    odd_path: 10,
    sound: 6,
    wrong_length: 4,
    chunked: 4,
    odd_headers: 4,
    odd_key: 3,
    no_http: 3,
    upgrade: 1,
}


def attempts(seed: int, *, key: Headers = ()) -> Iterator[Attempt]:
    """Yields endless attempts; an equal seed gives the same ones.

    Args:
        seed: Any integer.
        key: Headers with a key, for a service that has keys.
    """
    draw = random.Random(seed)
    families, weights = list(FAMILIES), list(FAMILIES.values())
    while True:
        (family,) = draw.choices(families, weights)
        yield family(draw, key)


def held_open(key: Headers) -> list[Attempt]:
    """Bodies that begin and never end, on connections that stay open."""
    begun = json.dumps({"question": f"Which?{HALF}"}).encode()[:-1]
    announced = request_bytes("POST", b"/judge", begun, headers=_JSON + key, length=b"5000")
    headers = ((b"Transfer-Encoding", b"chunked"), *_JSON, *key)
    chunks = request_bytes("POST", b"/calibrate", headers=headers, length=b"") + b'5\r\n{"exa\r\n'
    got = request_bytes("GET", b"/info", b"", headers=key, length=b"10")
    return [
        Attempt("held open", "POST /judge", "POST", announced),
        Attempt("held open", "POST /calibrate", "POST", chunks),
        Attempt("held open", "GET /info", "GET", got),
    ]
