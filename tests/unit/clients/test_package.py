"""The package as such: its Python, its types, its versions, and no secret in any text of it."""

import pickle
import tomllib
import traceback
from typing import Any

import pytest

import app
import scope_judge
from app.api.problems import STATUS
from scope_judge import AsyncScopeClient, ScopeClient, ScopeError, records
from scope_judge.errors import class_of
from tests.programs import free_port
from tests.unit.clients.client_kinds import KINDS, Kind, call
from tests.unit.clients.planned import PlannedService, hang_up, page, problem, serving
from tests.unit.docs.markdown import ROOT

FOLDER = ROOT / "clients" / "python"
FILES = sorted((FOLDER / "scope_judge").rglob("*.py"))
KEY = "sj_0123456789abcdef"
TEXT = "a secret question"


def test_each_error_of_the_service_has_an_exception_of_its_branch() -> None:
    from app.core import errors

    for error, status in STATUS.items():
        kind = class_of(status, error.code)
        assert issubclass(kind, scope_judge.RequestError) == issubclass(error, errors.RequestError)
        assert issubclass(kind, scope_judge.UnavailableError) == issubclass(
            error, errors.UnavailableError
        )
        assert issubclass(kind, scope_judge.ServerError) == issubclass(error, errors.DefectError)


def test_the_distribution_has_one_version_one_dependency_and_types() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    service = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert scope_judge.__version__ == app.__version__
    assert [name.partition(">")[0] for name in project["dependencies"]] == ["httpx"]
    assert project["license"] == service["license"]
    assert (FOLDER / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (FOLDER / "scope_judge" / "py.typed").is_file()
    assert set(scope_judge.__all__) <= set(dir(scope_judge))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", [problem(401, "unauthenticated"), page(404), hang_up, None])
def test_no_exception_shows_the_key_or_a_text(
    kind: Kind, act: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with serving(PlannedService([act] * 2 if act else [])) as service:
        host = service.url if act else f"http://127.0.0.1:{free_port()}"
        url = host.replace("http://", f"http://user:{KEY}@")
        with pytest.raises(ScopeError) as caught:
            call(kind, url, "judge", TEXT, "a", "b")
        if act is not None:
            assert service.headers[0]["Authorization"] == f"Bearer {KEY}"
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    shown += repr(vars(caught.value)) + caplog.text
    assert KEY not in shown
    assert TEXT not in shown
    assert caught.value.__context__ is None


def test_no_repr_shows_the_key() -> None:
    with ScopeClient("http://x:other@host/base", KEY) as client:
        session = client._session
        shown = repr(client) + repr(session) + str(client.url)
        assert client.url == "http://host/base"
    assert KEY not in shown
    assert "other" not in shown


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8000", "'localhost:8000' is not the address of a service"),
        ("x:secret@host", "'host' is not the address"),
        ("ftp://x:secret@host/p", "'host/p' is not the address"),
        ("http://", "write it with http:// or https://"),
    ],
)
def test_something_that_is_no_address_is_an_error_at_once(url: str, words: str) -> None:
    for client in (ScopeClient, AsyncScopeClient):
        with pytest.raises(ValueError, match="http") as caught:
            client(url)
        assert words in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["sj_\u2026", "sj_1\nX: y"])
def test_something_that_is_no_key_is_an_error_that_does_not_show_it(key: str) -> None:
    with pytest.raises(ValueError, match="characters that a key cannot have") as caught:
        ScopeClient("http://host", key)
    assert "sj_" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_address_and_key_are_in_the_environment(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(PlannedService()) as service:
        monkeypatch.setenv("SCOPE_URL", service.url)
        monkeypatch.setenv("SCOPE_API_KEY", f" {KEY}\n")
        assert call(kind, None, "judge", "q", "a", "b").verdict == "A"
        assert call(kind, None, "judge", "q", "a", "b", client_api_key="sj_2").verdict == "A"
    sent = [headers["Authorization"] for headers in service.headers]
    assert sent == [f"Bearer {KEY}", "Bearer sj_2"]


def test_exceptions_and_results_cross_processes() -> None:
    error = class_of(503, "draining")("later", code="draining", status=503, retry_after_s=2.0)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    item = records.ItemError(id=1, error=records.Problem(code="internal", detail="d", status=500))
    assert pickle.loads(pickle.dumps(item)) == item
