"""The real service on a socket, with the scripted judge."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from app.main import create
from tests.unit.api.problems import examples
from tests.unit.cli.listening import listening

ENVIRONMENT = {
    "SCOPE_ENGINE": "scripted",
    "SCOPE_STORE_URL": "memory://",
    "SCOPE_MAX_BATCH": "300",
}


@contextmanager
def running(**settings: str) -> Iterator[str]:
    """URL of a service without a calibration."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, **settings}.items():
            patch.setenv(name, value)
        application = create()
    with listening(application) as url:
        yield url


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """URL of a service whose default set has 60 pairs; its judge reads `quality=1.5` in texts."""
    with running() as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples()}).raise_for_status()
        yield url


@pytest.fixture(scope="session")
def small_url(service_url: str) -> Iterator[str]:
    """URL of a service with the same set, in which a request has four comparisons at most."""
    with running(SCOPE_MAX_BATCH="4") as url:
        exported = httpx.get(f"{service_url}/calibrations/default/examples").json()
        body = {name: exported[name] for name in ("fingerprint", "examples")}
        httpx.post(f"{url}/calibrations/default/examples", json=body).raise_for_status()
        yield url
