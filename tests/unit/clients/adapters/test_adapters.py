"""Each outcome through every adapter: no verdict is no label, and an error is no reward."""

from collections.abc import Iterator
from typing import Any

import pytest

from scope_judge import (
    NotFoundError,
    ScopeError,
    ServerError,
    TooSlowError,
    UnavailableError,
)
from tests.unit.clients.adapters.adapters import ADAPTERS
from tests.unit.clients.adapters.scenes import SCENES, Found
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


@pytest.mark.parametrize("failures", ["raise", "none"])
@through_every_adapter
def test_a_wrong_configuration_is_always_an_error(url: str, adapter: str, failures: str) -> None:
    options = {"url": url, "failures": failures}
    with pytest.raises(NotFoundError, match="absent"):
        ADAPTERS[adapter]("quality=1", "quality=0", {**options, "calibration": "absent"})
