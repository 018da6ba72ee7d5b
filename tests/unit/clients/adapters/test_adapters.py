"""Each outcome through every adapter: no verdict is no label, and an error is no reward."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.api.keys import Keys
from app.core.errors import EngineUnavailableError, OverloadedError
from app.judges.engines.scripted import ScriptedEngine
from app.ports import LabelLogits
from scope_judge import (
    AuthenticationError,
    NotFoundError,
    ScopeError,
    ServerError,
    TooSlowError,
    UnavailableError,
)
from tests.unit.api.keyring import entry, write_keys
from tests.unit.api.rewards.test_reward_routes import GoneStore, raises
from tests.unit.clients.adapters.adapters import ADAPTERS
from tests.unit.clients.adapters.scenes import SCENES, Found
from tests.unit.clients.adapters.service import served

through_every_adapter = pytest.mark.parametrize("adapter", ADAPTERS)


@pytest.mark.parametrize("name", SCENES)
@through_every_adapter
def test_an_outcome_is_the_same_through_every_adapter(url: str, adapter: str, name: str) -> None:
    response, opponent, options, expected = SCENES[name]
    found = ADAPTERS[adapter](response, opponent, {"url": url, **options})
    assert found.reason == expected.reason
    assert found.number == (None if expected.number is None else pytest.approx(expected.number))


# URL, the exception of the client, and options.
Failing = tuple[str, type[ScopeError], dict[str, Any]]

# Failure -> engine, store, settings, and the exception of the client.
FAILURES: dict[str, tuple[ScriptedEngine, Any, dict[str, Any], type[ScopeError]]] = {
    "503, engine": (
        ScriptedEngine(raises(EngineUnavailableError("down"))),
        None,
        {},
        UnavailableError,
    ),
    "503, overload": (ScriptedEngine(raises(OverloadedError("full"))), None, {}, UnavailableError),
    "503, store": (ScriptedEngine(), GoneStore, {}, UnavailableError),
    "504": (ScriptedEngine(latency_s=3600.0), None, {"timeout_s": 0.05}, TooSlowError),
    "502": (
        ScriptedEngine(lambda prompt: LabelLogits(math.nan, math.nan)),
        None,
        {},
        ServerError,
    ),
    "500": (ScriptedEngine(raises(ZeroDivisionError())), None, {}, ServerError),
}


@pytest.fixture(scope="module", params=FAILURES)
def failing(
    request: pytest.FixtureRequest,
) -> Iterator[Failing]:
    engine, store, settings, error = FAILURES[request.param]
    options = {} if store else {"alpha": None}
    with served(engine, store and store(), calibrated=False, **settings) as url:
        yield url, error, options


@through_every_adapter
def test_a_failure_is_raised(failing: Failing, adapter: str) -> None:
    url, error, options = failing
    with pytest.raises(error):
        ADAPTERS[adapter]("quality=1", "quality=0", {"url": url, "patience_s": 0.0, **options})


@through_every_adapter
def test_a_failure_that_is_not_to_be_raised_is_no_reward(failing: Failing, adapter: str) -> None:
    url, _, options = failing
    asked = {"url": url, "patience_s": 0.0, "failures": "none", **options}
    assert ADAPTERS[adapter]("quality=1", "quality=0", asked) == Found(None, "unanswered")


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
