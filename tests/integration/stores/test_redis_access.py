"""Redis behind TLS with a private authority, and as a user with the rights that the pages name."""

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.processes.server import Server
from tests.programs import Program, free_port
from tests.redis_server import RedisServer
from tests.unit.api.problems import comparison, examples

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "deploy" / "index.md"
RIGHTS = "~scope:* &scope:* +@all -@admin -@dangerous"


def test_a_user_with_the_documented_rights_can_do_everything(tmp_path: Path) -> None:
    assert f"`{RIGHTS}`" in PAGE.read_text()
    with RedisServer(tmp_path) as redis:
        redis.command("ACL", "SETUSER", "judge", "on", ">secret", *RIGHTS.split())
        settings = {
            "SCOPE_ENGINE": "scripted",
            "SCOPE_STORE_URL": redis.url.replace("redis://", "redis://judge:secret@"),
            "SCOPE_AUDIT_RATE": "1",
            "SCOPE_SCORE_CACHE": "60",
        }
        with Server(tmp_path, settings) as server:
            assert done(server.client, "POST", "/calibrate", {"examples": examples()})
            assert done(server.client, "POST", "/calibrate", {"examples": examples(61)})
            audit = done(server.client, "POST", "/judge", comparison())["audit"]
            assert isinstance(audit, dict)
            label = {"labels": [{"id": audit["id"], "label": "A"}]}
            assert done(server.client, "POST", "/audits/labels", label)["labelled"] == 1
            version = done(server.client, "GET", "/calibrations/default/versions")
            assert isinstance(version["versions"], list)
            back = {"version": 1}
            assert done(server.client, "POST", "/calibrations/default/rollback", back)
            assert done(server.client, "GET", "/calibrations/default/monitor")
            assert server.client.delete("/calibrations/default").is_success
            # Announcements of changes need a channel.
            assert "does not announce" not in server.log.read_text()


def done(client: httpx.Client, method: str, path: str, body: Any = None) -> dict[str, object]:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_a_certificate_of_a_private_authority_needs_its_file(tmp_path: Path) -> None:
    certificate, key, port = tmp_path / "ca.pem", tmp_path / "key.pem", free_port()
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *named, *files], check=True, capture_output=True)
    options = f"--port 0 --tls-port {port} --tls-auth-clients no"
    tls = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    command = ["redis-server", *options.split(), *tls]
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": f"rediss://localhost:{port}/0"}
    with Program(tmp_path, "redis", command, ready="Ready to accept", cwd=tmp_path):
        with pytest.raises(AssertionError, match=r"certificate of Redis[\s\S]*ssl_ca_certs"):
            Server(tmp_path, settings).start()
        settings["SCOPE_STORE_URL"] += f"?ssl_ca_certs={certificate}"
        with Server(tmp_path, settings) as server:
            assert done(server.client, "POST", "/calibrate", {"examples": examples()})
