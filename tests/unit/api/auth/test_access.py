"""Tests of access: every route with every role, and every way to send no valid key."""

import itertools
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.access import NEEDS, ROLES
from app.api.keys import Keys
from tests.serving import application_of, client_of
from tests.unit.api.asgi import never_read, talk
from tests.unit.api.keyring import entry, header_of, key_of, response_to, write_keys
from tests.unit.api.problems import comparison, examples, problem
from tests.unit.api.rewards.reward_routes import PATHS
from tests.unit.api.rewards.reward_routes import ROUTES as REWARDS

HOLDERS = {
    "-".join(roles) or "none": roles
    for n in range(len(ROLES) + 1)
    for roles in itertools.combinations(ROLES, n)
}
ROUTES = sorted(NEEDS)
DESK = {("GET", "/desk"), ("GET", "/desk/{file:path}")}
OPEN = {("GET", "/healthz"), ("GET", "/readyz")} | DESK
MATRIX: dict[Any, str] = {
    "/judge": "judge",
    "/judge/batch": "judge",
    "/v1/systemone": "judge",
    "/v1/decisions": "judge",
    **dict.fromkeys(PATHS, "judge"),
    "/scores": "judge",
    "/calibrations/{name}/cascade": "calibrate",
    "/calibrate": "calibrate",
    "/calibrate/scores": "calibrate",
    ("POST", "/calibrations/{name}/examples"): "calibrate",
    ("POST", "/audits/labels"): "calibrate",
    ("POST", "/calibrations/{name}/absorb"): "calibrate",
    "/calibrations/{name}/resume": "calibrate",
    ("POST", "/calibrations/{name}/pool"): "calibrate",
    "/calibrations/{name}/rollback": "admin",
    ("DELETE", "/calibrations/{name}"): "admin",
    "/metrics": "metrics",
}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    entries = [entry(name, roles) for name, roles in HOLDERS.items()]
    one = entry("one", ROLES, ["one"])
    return Keys(write_keys(tmp_path / "keys.json", *entries, one))


@pytest.fixture
async def client(keys: Keys) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(keys=keys) as client:
        yield client


def routes_of_the_application() -> Iterator[tuple[str, str]]:
    route: Any
    for route in application_of().routes:
        for method in route.methods - {"HEAD"}:
            yield method, route.path


def test_every_route_is_in_the_table_and_none_is_open_by_accident() -> None:
    assert set(NEEDS) == set(routes_of_the_application())
    assert {route for route, need in NEEDS.items() if need == "nothing"} == OPEN
    # A route that changes or computes something needs a role, and so do the metrics.
    writing = {route for route in NEEDS if route[0] != "GET"}
    assert writing | {("GET", "/metrics")} == {
        route for route, need in NEEDS.items() if need in (*ROLES, "calibrate or label")
    }


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_each_route_accepts_exactly_the_callers_with_its_permission(
    method: str, path: str, client: httpx.AsyncClient
) -> None:
    needed = MATRIX.get(path, MATRIX.get((method, path)))
    url = path.replace("{name}", "default").replace("{file:path}", "app.js")
    response = await response_to(client, method, url)
    if (method, path) in OPEN:
        assert response.status_code == 200
    else:
        problem(response, "unauthenticated")
    for name, roles in HOLDERS.items():
        response = await response_to(client, method, url, name)
        # Any other key may read; one that may only label may not.
        if path in ("/audits", "/info"):
            may = True
        elif path == "/audits/labels":
            may = "label" in roles or "calibrate" in roles
        else:
            may = needed in roles if needed else (method, path) in OPEN or roles != ("label",)
        if may:
            assert response.status_code not in (401, 403), (name, response.text)
        else:
            assert (needed or "label") in problem(response, "forbidden")["detail"]
            assert "www-authenticate" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", "not_found"),
        ("GET", "/", "not_found"),
        ("GET", "//healthz", "not_found"),
        ("GET", "/healthz/", "not_found"),
        ("GET", "/HEALTHZ", "not_found"),
        ("PUT", "/judge", "method_not_allowed"),
        ("OPTIONS", "/judge", "method_not_allowed"),
        ("POST", "/healthz", "method_not_allowed"),
        ("HEAD", "/healthz", None),
        ("DELETE", "/calibrations/", "not_found"),
        ("POST", "/judge/", "not_found"),
        ("POST", "/%6audge/", "not_found"),
    ],
)
async def test_unknown_paths_and_methods_look_the_same_without_a_key(
    method: str, path: str, code: str | None, client: httpx.AsyncClient
) -> None:
    target = httpx.URL(scheme="http", host="judge", raw_path=path.encode())
    response = await client.request(method, target)
    assert response.status_code == 401
    allowed = await client.request(method, target, headers=header_of("none"))
    assert allowed.status_code in (404, 405)
    if code is not None:
        problem(response, "unauthenticated")
        problem(allowed, code)


async def test_an_escaped_path_needs_the_role_of_its_route(
    client: httpx.AsyncClient,
) -> None:
    target = httpx.URL(scheme="http", host="judge", raw_path=b"/%6audge")
    answer = await client.post(target, json=comparison(alpha=None), headers=header_of("admin"))
    problem(answer, "forbidden")
    answer = await client.post(target, json=comparison(alpha=None), headers=header_of("judge"))
    assert answer.status_code == 200


KEY = key_of("judge").encode()
UNUSABLE: dict[str, list[tuple[bytes, bytes]]] = {
    "no header": [],
    "empty": [(b"Authorization", b"")],
    "no key": [(b"Authorization", b"Bearer")],
    "spaces": [(b"Authorization", b"Bearer   ")],
    # Only trainers may send their key so, to the routes of rewards.
    "in a URL": [(b"Authorization", b"Basic " + b64encode(b"x:" + KEY))],
    "no scheme": [(b"Authorization", KEY)],
    "two headers": [(b"Authorization", b"Bearer " + KEY)] * 2,
    "two headers, one wrong": [
        (b"Authorization", b"Bearer " + KEY),
        (b"authorization", b"Bearer x"),
    ],
    "another header": [(b"X-API-Key", KEY)],
}
WRONG: dict[str, list[tuple[bytes, bytes]]] = {
    "unknown": [(b"Authorization", b"Bearer scope_unknown")],
    "not ASCII": [(b"Authorization", b"Bearer \xff\xfe\xe4")],
    "huge": [(b"Authorization", b"Bearer " + b"x" * 60_000)],
    "two in one": [(b"Authorization", b"Bearer " + KEY + b", Bearer " + KEY)],
    "cut": [(b"Authorization", b"Bearer " + KEY[:-1])],
    "other letters": [(b"Authorization", b"Bearer " + KEY.upper())],
    "its hash": [(b"Authorization", b"Bearer " + entry("judge")["sha256"].encode())],
}


@pytest.mark.parametrize("case", [*UNUSABLE, *WRONG])
async def test_a_request_without_a_valid_key_is_refused_with_a_challenge(
    case: str, client: httpx.AsyncClient
) -> None:
    headers = UNUSABLE.get(case) or WRONG.get(case)
    response = await client.post("/judge", json=comparison(alpha=None), headers=headers)
    problem(response, "unauthenticated")
    error = ', error="invalid_token"' if case in WRONG else ""
    assert response.headers["www-authenticate"] == f'Bearer realm="scope-judge"{error}'
    assert key_of("judge") not in response.text


HUGE = [(b"content-length", b"1000000000000")]


@pytest.mark.parametrize(
    ("method", "path", "key", "status"),
    [
        ("POST", "/judge", None, 401),
        ("POST", "/judge", "admin", 403),
        ("POST", "/nothing", "judge", 404),
        ("POST", "/judge/", "judge", 404),
        ("PUT", "/judge", "judge", 405),
        ("POST", "/calibrations/x", "judge", 405),
    ],
)
async def test_the_body_of_a_refused_request_is_never_read(
    method: str, path: str, key: str | None, status: int, keys: Keys
) -> None:
    app = application_of(keys=keys)
    async with app.router.lifespan_context(app):
        sent = await talk(app, path, then=never_read, method=method, headers=HUGE, key=key)
    assert sent[0]["status"] == status


async def test_a_path_with_two_routes_allows_the_methods_of_both(client: httpx.AsyncClient) -> None:
    response = await response_to(client, "PUT", "/calibrations/x", "none")
    problem(response, "method_not_allowed")
    assert response.headers["allow"] == "DELETE, GET"


async def test_a_websocket_is_closed(keys: Keys) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    app = application_of(keys=keys)
    await app({"type": "websocket", "path": "/judge", "headers": []}, receive, send)
    assert [each["type"] for each in sent] == ["websocket.close"]


async def test_the_port_of_the_metrics_answers_them_to_everybody_and_nothing_else(
    keys: Keys,
) -> None:
    async with client_of(keys=keys, metrics_port=9464) as client:

        async def on_it(method: str, path: str, holder: str = "", **more: Any) -> httpx.Response:
            headers = header_of(holder) if holder else {}
            url = f"http://localhost:9464{path}"
            return await client.request(method, url, headers=headers, **more)

        assert (await on_it("GET", "/metrics")).text.startswith("# HELP")
        everything = "-".join(ROLES)
        for path in ("/healthz", "/readyz", "/info", "/docs", "/metrics/", "/nothing"):
            answer = problem(await on_it("GET", path, everything), "not_found")
            assert "SCOPE_METRICS_PORT" in answer["detail"]
        judged = await on_it("POST", "/judge", everything, json=comparison(alpha=None))
        problem(judged, "not_found")
        problem(await on_it("POST", "/metrics"), "method_not_allowed")
        # The caller chooses the Host header, and not the port.
        lying = await client.get("/metrics", headers={"Host": "localhost:9464"})
        assert lying.status_code == 401


async def test_a_key_limited_to_sets_cannot_read_metrics(keys: Keys) -> None:
    async with client_of(keys=keys) as client:
        answer = problem(await response_to(client, "GET", "/metrics", "one"), "forbidden")
        assert "limited to certain calibration sets" in answer["detail"]


NAMED = {"calibration": "default"}
SCORE = {"gap_fwd": 1.0, "gap_rev": 1.0, "label_mass": 1.0}
BOTH = [{"small": SCORE, "large": SCORE}]
SCORED = {"fingerprint": "f" * 64, "examples": []}
# The body of each request for the set `default`; the routes with its name in their path are all.
OF_ONE_SET: dict[tuple[str, str], Any] = {
    ("POST", "/judge"): comparison(**NAMED),
    ("POST", "/calibrate"): {"examples": examples(1), **NAMED},
    ("POST", "/calibrate/scores"): {"examples": examples(1), **NAMED},
    **{
        ("POST", route.path): route.body("a", "b") | NAMED
        for route in REWARDS.values()
        if not route.in_query
    },
    ("GET", "/audits?calibration=default"): None,
    **{
        (method, path): {
            "examples": SCORED,
            "pool": {"comparisons": []},
            "rollback": {"version": 1},
            "resume": {"reason": "mended"},
            "absorb": {},
            "cascade": {"small": "f" * 64, "large": "e" * 64, "alpha": 0.1, "pairs": BOTH * 1000},
        }.get(path.rpartition("/")[2])
        if method == "POST"
        else None
        for method, path in ROUTES
        if path.startswith("/calibrations/{name}")
    },
}


@pytest.mark.parametrize(("method", "path"), OF_ONE_SET)
async def test_a_key_can_use_only_its_own_calibration_sets(
    method: str, path: str, client: httpx.AsyncClient
) -> None:
    url, body = path.replace("{name}", "default"), OF_ONE_SET[method, path]
    response = await client.request(method, url, json=body, headers=header_of("one"))
    assert "'default'" in problem(response, "forbidden")["detail"]


async def test_lists_have_only_the_sets_and_audits_of_a_key(keys: Keys) -> None:
    async with client_of(keys=keys, audit_rate=1.0) as client:
        all_of_it, one = header_of("judge-calibrate-admin"), header_of("one")
        drawn = dict[str, str]()
        for name in ("one", "default"):
            body = {"examples": examples(20), "calibration": name}
            await client.post("/calibrate", json=body, headers=all_of_it)
            asked = comparison(calibration=name, question="Drawn?")
            judged = await client.post("/judge", json=asked, headers=all_of_it)
            drawn[name] = judged.json()["audit"]["id"]
        seen = (await client.get("/calibrations", headers=one)).json()["calibrations"]
        assert [each["name"] for each in seen] == ["one"]
        audits = (await client.get("/audits", headers=one)).json()["audits"]
        assert [each["id"] for each in audits] == [drawn["one"]]
        labels = {"labels": [{"id": each, "label": "A"} for each in drawn.values()]}
        refused = problem(
            await client.post("/audits/labels", json=labels, headers=one), "forbidden"
        )
        assert drawn["default"] in refused["detail"]
        # Items of a batch fail alone.
        pairs = [comparison(calibration=name) for name in drawn]
        batch = await client.post("/judge/batch", json={"comparisons": pairs}, headers=one)
        first, second = batch.json()["results"]
        assert (first["verdict"], second["error"]["code"]) == ("A", "forbidden")
        assert (await client.delete("/calibrations/one", headers=one)).status_code == 204


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "localhost.evil.example", "10.0.0.1", "x", "::1", ":"],
)
async def test_without_keys_dns_rebinding_is_refused(host: str) -> None:
    async with client_of() as client:
        for method, path in (("POST", "/judge"), ("DELETE", "/calibrations/x"), ("GET", "/info")):
            problem(await client.request(method, path, headers={"Host": host}), "forbidden")
        assert (await client.get("/healthz", headers={"Host": host})).status_code == 200


async def test_without_keys_other_machines_are_refused_on_every_listening_address() -> None:
    app = application_of()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://10.1.2.3:8000"
        ) as client,
    ):
        headers = {"Host": "localhost"}
        problem(await client.post("/judge", json=comparison(), headers=headers), "forbidden")
        problem(await client.get("/metrics", headers=headers), "forbidden")
        assert (await client.get("/readyz", headers=headers)).status_code == 200


PROXIED = [
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "Forwarded",
    "Via",
    "X-Forwarded",
    "True-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Original-Forwarded-For",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "DO-Connecting-IP",
    "X-Azure-ClientIP",
    "X-Envoy-External-Address",
    "CF-Connecting-IP",
    "CF-Ray",
    "Tailscale-User-Login",
]


@pytest.mark.parametrize("name", PROXIED)
async def test_without_keys_requests_through_a_proxy_are_refused(name: str) -> None:
    async with client_of() as client:
        headers = {name: "127.0.0.1"}
        problem(await client.get("/info", headers=headers), "forbidden")
        problem(await client.post("/judge", json={}, headers=headers), "forbidden")
        assert (await client.get("/healthz", headers=headers)).status_code == 200


async def test_with_keys_headers_of_a_proxy_do_not_matter(client: httpx.AsyncClient) -> None:
    proxied = dict.fromkeys(PROXIED, "192.0.2.7")
    answer = await client.get("/info", headers=header_of("none") | proxied)
    assert answer.status_code == 200


async def test_without_keys_a_foreign_client_address_from_uvicorn_is_refused() -> None:
    app = application_of()
    # Uvicorn makes this scope if a proxy on this machine sends X-Forwarded-For.
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 0))
    other = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    async with app.router.lifespan_context(app), other:
        problem(await other.get("/info"), "forbidden")
        assert (await other.get("/healthz")).status_code == 200
