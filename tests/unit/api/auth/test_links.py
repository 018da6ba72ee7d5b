"""Links for reviewers: a token permits labelling of one set for a while, and nothing else."""

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.keys import CHECK_EVERY_S, Keys, hash_of
from app.api.auth.links import LabelLink, secret_of
from app.api.auth.needs import NEEDS
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, key_of, write_keys
from tests.unit.api.problems import calibrated, problem
from tests.unit.api.test_audits import drawn, listed

LINKS = "/calibrations/default/label-links"
QUEUE = "/calibrations/default/queue"
NEEDS_LABEL = {route for route, need in NEEDS.items() if need == "label"}
TICKET = f"{0:032x}.A.{0:032x}"
BODIES = {
    "queue": {"take": 1},
    "answers": {"answers": [{"ticket": TICKET, "choice": "left"}]},
    "release": {"tickets": [TICKET]},
}
OWNER = entry("owner", ["judge", "calibrate"])


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


class KeyFile:
    """A key file that a service reads again at once."""

    def __init__(self, folder: Path, *entries: dict[str, Any]) -> None:
        self._path = folder / "keys.json"
        self.clock, self.now = Clock(), Clock()
        write_keys(self._path, *entries)
        self.keys = Keys(self._path, clock=self.clock, now=self.now)

    def write(self, *entries: dict[str, Any]) -> None:
        write_keys(self._path, *entries)
        self.clock.now += CHECK_EVERY_S


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path, OWNER, entry("reader", []), entry("lab", ["label"]))


@asynccontextmanager
async def service(file: KeyFile) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(keys=file.keys, audit_rate=1.0, audit_texts=True) as client:
        client.headers.update(header_of("owner"))
        await calibrated(client)
        yield client


async def made(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post(LINKS, json={"reviewer": "anna", **fields})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def asked(client: httpx.AsyncClient, token: str, **fields: Any) -> httpx.Response:
    return await client.post(QUEUE, json={"take": 1, **fields}, headers=bearing(token))


async def refused(client: httpx.AsyncClient, token: str) -> None:
    """Checks that a token is refused as a wrong key is."""
    response = await asked(client, token)
    problem(response, "unauthenticated")
    wrong = await asked(client, "scope_unknown")
    assert response.headers["www-authenticate"] == wrong.headers["www-authenticate"]


def changed(token: str, **fields: Any) -> str:
    """The token with another payload and the old seal."""
    _, payload, seal = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    new = json.dumps({**content, **fields}).encode()
    return f"scope_link.{base64.urlsafe_b64encode(new).decode().rstrip('=')}.{seal}"


async def test_a_link_labels_one_set_under_one_name(file: KeyFile) -> None:
    async with service(file) as client:
        await drawn(client, [0])
        link = await made(client)
        assert set(link) == {"token", "path", "reviewer", "expires"}
        assert (link["path"], link["reviewer"]) == ("/desk#label/default", "anna")
        assert link["expires"] == "2027-01-18T08:00:00Z"
        token = link["token"]
        (pair,) = (await asked(client, token, reviewer="anna")).json()["pairs"]
        answers = {"answers": [{"ticket": pair["ticket"], "choice": "tie"}]}
        answer = await client.post(f"{QUEUE}/answers", json=answers, headers=bearing(token))
        assert answer.json()["labelled"] == 1
        assert [each["labelled_by"] for each in (await listed(client))["audits"]] == ["anna@owner"]
        detail = problem(await asked(client, token, reviewer="ben"), "forbidden")["detail"]
        assert "anna@owner" in detail


async def test_a_link_can_do_nothing_but_label(file: KeyFile) -> None:
    async with service(file) as client:
        link = bearing((await made(client))["token"])
        label_key = header_of("lab")
        checked = 0
        for (method, path), need in NEEDS.items():
            if need in ("nothing", "label"):
                continue
            url = path.replace("{name}", "default")
            for headers in (link, label_key):
                problem(await client.request(method, url, headers=headers), "forbidden")
                checked += 1
        assert checked >= 2 * 30
        # It may not label another set.
        for method, path in NEEDS_LABEL:
            other = path.replace("{name}", "other")
            body = BODIES[path.rpartition("/")[2]] if method == "POST" else None
            refusal = await client.request(method, other, json=body, headers=link)
            assert "other" in problem(refusal, "forbidden")["detail"]


async def test_a_link_expires(file: KeyFile) -> None:
    async with service(file) as client:
        token = (await made(client, hours=1))["token"]
        file.now.now += 3599
        assert (await asked(client, token)).status_code == 200
        file.now.now += 1
        await refused(client, token)


async def test_a_link_ends_with_the_end_of_its_key(file: KeyFile) -> None:
    ending = {**OWNER, "expires": "2027-01-15T10:00:00Z"}
    file.write(ending)
    async with service(file) as client:
        link = await made(client, hours=720)
        assert link["expires"] == "2027-01-15T10:00:00Z"
        assert (await asked(client, link["token"])).status_code == 200
        # The key gets an earlier end.
        file.write({**OWNER, "expires": "2027-01-15T07:00:00Z"})
        await refused(client, link["token"])


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{**OWNER, "roles": ["judge", "label", "admin"]}],
        [{**OWNER, "calibrations": ["other"]}],
        [{**OWNER, "sha256": entry("another")["sha256"]}],
        [{**OWNER, "name": "renamed"}],
    ],
)
async def test_a_link_dies_with_its_key_its_role_and_its_set(
    entries: list[dict[str, Any]], file: KeyFile
) -> None:
    async with service(file) as client:
        token = (await made(client))["token"]
        assert (await asked(client, token)).status_code == 200
        file.write(*entries, entry("reader", []))
        await refused(client, token)
        # It lives again with the same key.
        file.write(OWNER)
        assert (await asked(client, token)).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"calibration": "other"},
        {"reviewer": "ben"},
        {"expires": 4_000_000_000},
        {"key": "reader"},
        {"roles": ["admin"]},
        {},
    ],
)
async def test_a_changed_token_is_refused(fields: dict[str, Any], file: KeyFile) -> None:
    async with service(file) as client:
        token = (await made(client))["token"]
        forged = changed(token, **fields)
        assert forged != token
        await refused(client, forged)


async def test_a_token_that_is_sealed_with_something_else_is_refused(file: KeyFile) -> None:
    link = LabelLink(calibration="default", reviewer="anna", key="owner", expires=4_000_000_000)
    async with service(file) as client:
        good = link.token(secret_of(hash_of(key_of("owner").encode())))
        assert (await asked(client, good)).status_code == 200
        other = hash_of(key_of("reader").encode())
        # The key itself, its hash, another key, and nothing.
        for secret in (key_of("owner").encode(), hash_of(key_of("owner").encode()), other, b""):
            await refused(client, link.token(secret))
        # Another key seals a link in the name of the owner.
        await refused(client, link.token(secret_of(other)))


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.replace("scope_link.", "scope_link.."),
        lambda token: token.rpartition(".")[0] + ".",
        lambda token: token.rpartition(".")[0],
        lambda token: "scope_link.",
        lambda token: "scope_link." + "A" * 60_000 + "." + "A" * 43,
        lambda token: "scope_link." + "A" * 60_000,
        lambda token: "SCOPE_LINK." + token.partition(".")[2],
    ],
)
async def test_a_broken_token_is_refused(change: Any, file: KeyFile) -> None:
    async with service(file) as client:
        await refused(client, change((await made(client))["token"]))


async def test_a_sealed_payload_of_another_release_is_refused(file: KeyFile) -> None:
    secret = secret_of(hash_of(key_of("owner").encode()))

    class Later(LabelLink):
        more: int = 1

    later = Later(calibration="default", reviewer="anna", key="owner", expires=4_000_000_000)
    async with service(file) as client:
        await refused(client, later.token(secret))


async def test_only_a_key_that_may_calibrate_the_set_makes_links(file: KeyFile) -> None:
    file.write(OWNER, entry("lab", ["label", "judge", "admin"]), entry("o", ["calibrate"], ["o"]))
    async with service(file) as client:
        token = (await made(client))["token"]
        body = {"reviewer": "anna"}
        for headers in (header_of("lab"), header_of("o"), bearing(token)):
            problem(await client.post(LINKS, json=body, headers=headers), "forbidden")
        missing = await client.post("/calibrations/none/label-links", json=body)
        problem(missing, "calibration_not_found")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reviewer": ""},
        {"reviewer": "an@na"},
        {"reviewer": "x" * 65},
        {"reviewer": "anna", "hours": 0},
        {"reviewer": "anna", "hours": 721},
        {"reviewer": "anna", "hours": 1.5},
        {"reviewer": "anna", "set": "other"},
    ],
)
async def test_a_request_for_a_link_out_of_range_is_refused(body: Any, file: KeyFile) -> None:
    async with service(file) as client:
        problem(await client.post(LINKS, json=body), "invalid_request")


async def test_a_service_without_keys_makes_no_links_and_says_why() -> None:
    async with client_of() as client:
        await calibrated(client)
        answer = problem(await client.post(LINKS, json={"reviewer": "anna"}), "forbidden")
        assert "without keys" in answer["detail"]


def test_limits_and_counts_of_a_link_are_those_of_its_key(file: KeyFile) -> None:
    file.write({**OWNER, "comparisons_per_minute": 7})
    owner = file.keys.caller(key_of("owner").encode())
    token = file.keys.label_link(owner, calibration="default", reviewer="anna", hours=1).token
    caller = file.keys.caller(token.encode())
    assert (caller.name, caller.key, caller.comparisons_per_minute) == ("anna@owner", "owner", 7)
    assert caller.roles == {"label"}
    assert caller.calibrations == frozenset({"default"})


async def test_the_log_has_each_link_that_was_made_and_no_token(
    file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with service(file) as client:
        token = (await made(client, hours=1))["token"]
        await asked(client, token)
        await refused(client, token + "A")
    lines = [each.getMessage() for each in caplog.records if each.name == "app.api"]
    assert lines == [
        "the key 'owner' made a link for 'anna' to label 'default' until 2027-01-15T09:00:00+00:00"
    ]
    assert token.rpartition(".")[2] not in caplog.text
