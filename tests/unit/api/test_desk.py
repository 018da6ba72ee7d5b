"""Tests of GET /desk and its files: what is served, to whom, and with which headers."""

import hashlib
import re
from pathlib import Path

import httpx
import pytest

from app.api.desk.routes import FILES
from app.api.keys import Keys
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import calibrated, comparison, problem

STATIC = Path(__file__).parents[3] / "app" / "api" / "desk" / "static"


async def test_the_page_loads_nothing_but_its_own_files() -> None:
    async with client_of() as client:
        page = await client.get("/desk")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        policy = dict(
            part.strip().split(" ", 1)
            for part in page.headers["content-security-policy"].split(";")
        )
        assert policy.pop("img-src") == "'self' data:"
        assert set(policy.values()) == {"'self'", "'none'"}
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        linked = re.findall(r'(?:href|src)="([^"]+)"', page.text)
        assert linked
        for link in linked:
            # Relative, so that a proxy's prefix stays.
            assert re.fullmatch(r"desk/[a-z./_]+", link), link
            assert (await client.get(f"/{link}")).status_code == 200, link
        # An inline script or style would be refused by the policy.
        assert not re.search(r"<script>|<script [^>]*>[^<]|<style|style=| on\w+=", page.text)


async def test_an_import_of_each_script_is_a_file_of_the_page() -> None:
    for name in FILES:
        if name.endswith(".js"):
            text = (STATIC / name).read_text(encoding="utf-8")
            for target in re.findall(r'(?:\bfrom\s|import\()\s*"([^"]+)"', text):
                path = (STATIC / name).parent / target
                assert target.startswith("./"), (name, target)
                assert path.resolve().relative_to(STATIC).as_posix() in FILES, (name, target)


async def test_a_browser_that_has_a_file_gets_no_second_copy() -> None:
    async with client_of() as client:
        first = await client.get("/desk/app.js")
        assert first.headers["content-type"].split(";")[0].endswith("/javascript")
        assert first.headers["cache-control"] == "no-cache"
        again = await client.get("/desk/app.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = await client.get("/desk/app.js", headers={"If-None-Match": '"other"'})
        assert other.content == first.content


async def test_a_prefix_of_a_proxy_is_taken_off_and_opens_no_other_path() -> None:
    async with client_of(root_path="/judge-a") as client:
        assert (await client.get("/judge-a/desk")).status_code == 200
        assert (await client.get("/desk")).status_code == 200
        assert (await client.get("/judge-a/readyz")).status_code == 200
        for path in ("/judge-a", "/judge-b/desk", "/judge-a/judge-a/desk", "/judge-adesk"):
            problem(await client.get(path), "not_found")


async def test_a_prefix_takes_no_route_out_of_the_keys(tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("ann", ["judge"])))
    async with client_of(root_path="/judge-a", keys=keys) as client:
        for path in ("/info", "/judge-a/info", "/judge-a/judge-a/info"):
            assert (await client.get(path)).status_code == 401
        found = await client.get("/judge-a/info", headers=header_of("ann"))
        assert found.status_code == 200


async def test_without_keys_a_person_has_the_name_that_the_browser_sends() -> None:
    async with client_of(audit_rate=1.0) as client:
        for sent, name in {"Jos%C3%A9": "José", "": "anonymous", "a%0Ab": "anonymous"}.items():
            found = await client.get("/info", headers={"X-Scope-Person": sent})
            assert found.json()["caller"] == name
        await calibrated(client)
        await client.post("/judge", json=comparison(), headers={"X-Scope-Person": "ann"})
        # Judgments are counted by key.
        usage = (await client.get("/usage")).json()
        assert [key["key"] for key in usage["keys"]] == ["anonymous"]
        (audit,) = (await client.get("/audits")).json()["audits"]
        assert audit["drawn_by"] == "anonymous"


@pytest.mark.parametrize(
    "path",
    ["index.html", "../files.py", "vendor/README.md", "vendor/LICENSE.htm", "", "nothing.js"],
)
async def test_no_other_file_is_served(path: str) -> None:
    async with client_of() as client:
        url = httpx.URL(f"http://localhost/desk/{path.replace('..', '%2e%2e')}")
        problem(await client.get(url), "not_found")


def test_the_libraries_are_those_that_their_page_pins() -> None:
    page = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^\| `([\w.]+)` \|.*`([0-9a-f]{64})`", page, re.MULTILINE))
    files = {path.name: path.read_bytes() for path in (STATIC / "vendor").glob("*.[jc]s*")}
    assert set(pins) == set(files)
    source_map = b"//# sourceMappingURL=%s.map\n"
    original = {
        **files,
        "preact.js": files["preact.js"] + source_map % b"preact.mjs",
        "hooks.js": files["hooks.js"].replace(b'"./preact.js"', b'"preact"')
        + source_map % b"hooks.mjs",
    }
    for name, content in original.items():
        assert hashlib.sha256(content).hexdigest() == pins[name], name
