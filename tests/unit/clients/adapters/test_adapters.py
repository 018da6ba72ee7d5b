"""Each outcome through every adapter: no verdict is no label, and an error is no reward."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.api.keys import Keys
from app.judges.engines.scripted import ScriptedEngine
from scope_judge import (
    AuthenticationError,
    NotFoundError,
    ScopeError,
    ServerError,
    TooSlowError,
    UnavailableError,
)
from tests.unit.api.keyring import entry, write_keys
from tests.unit.clients.adapters.adapters import ADAPTERS
from tests.unit.clients.adapters.scenes import SCENES, Found
from tests.unit.clients.adapters.service import served
from tests.unit.clients.planned import PlannedService, problem, serving

through_every_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


@pytest.mark.parametrize("name", SCENES)
@through_every_adapter
def test_an_outcome_is_the_same_through_every_adapter(url: str, adapter: str, name: str) -> None:
    response, opponent, options, expected = SCENES[name]
    found = ADAPTERS[adapter](response, opponent, {"url": url, **options})
    assert found.reason == expected.reason
    assert found.number == (None if expected.number is None else pytest.approx(expected.number))


# Code of the service -> its status, and the exception of the client.
FAILURES: dict[str, tuple[int, type[ScopeError]]] = {
    "overloaded": (429, UnavailableError),
    "engine_unavailable": (503, UnavailableError),
    "deadline_exceeded": (504, TooSlowError),
    "judgment_failed": (502, ServerError),
    "internal": (500, ServerError),
}


@pytest.fixture(scope="module", params=FAILURES)
def failing(request: pytest.FixtureRequest) -> Iterator[tuple[str, type[ScopeError]]]:
    status, error = FAILURES[request.param]
    act = problem(status, request.param)
    with serving(PlannedService(rule=lambda handler, body: act(handler))) as service:
        yield service.url, error


@through_every_adapter
def test_a_failure_is_raised_unless_it_shall_be_no_reward(failing: Any, adapter: str) -> None:
    url, error = failing
    asked = {"url": url, "patience_s": 0.0}
    with pytest.raises(error):
        ADAPTERS[adapter]("quality=1", "quality=0", asked)
    found = ADAPTERS[adapter]("quality=1", "quality=0", {**asked, "failures": "none"})
    assert found == Found(None, "unanswered")


@through_every_adapter
def test_a_timeout_of_the_client_is_no_reward(adapter: str) -> None:
    with served(ScriptedEngine(latency_s=3600.0), calibrated=False, timeout_s=60.0) as url:
        asked = {"url": url, "timeout_s": 0.2, "patience_s": 0.0, "alpha": None}
        with pytest.raises(TooSlowError):
            ADAPTERS[adapter]("quality=1", "quality=0", asked)
        found = ADAPTERS[adapter]("quality=1", "quality=0", {**asked, "failures": "none"})
    assert found == Found(None, "unanswered")


@pytest.mark.parametrize("failures", ["raise", "none"])
@through_every_adapter
def test_a_wrong_configuration_is_always_an_error(url: str, adapter: str, failures: str) -> None:
    options = {"url": url, "failures": failures}
    with pytest.raises(NotFoundError, match="absent"):
        ADAPTERS[adapter]("quality=1", "quality=0", {**options, "calibration": "absent"})


@pytest.mark.parametrize("failures", ["raise", "none"])
@through_every_adapter
def test_a_wrong_key_is_always_an_error(adapter: str, failures: str, tmp_path: Path) -> None:
    keys = Keys(write_keys(tmp_path / "keys.json", entry("judge")))
    with served(calibrated=False, keys=keys) as url:
        options = {"url": url, "api_key": "wrong", "failures": failures}
        with pytest.raises(AuthenticationError, match="does not know the key"):
            ADAPTERS[adapter]("quality=1", "quality=0", options)
