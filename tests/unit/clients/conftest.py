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
    "SCOPE_MAX_PENDING": "600",
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


@pytest.fixture(scope="module")
def service_url() -> Iterator[str]:
    """URL of a service whose default set has 60 pairs; its judge reads `quality=1.5` in texts."""
    with running() as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples()}).raise_for_status()
        yield url


@pytest.fixture
def audited_url() -> Iterator[str]:
    """URL of a service of one test, which draws every judgment."""
    with running(SCOPE_AUDIT_RATE="1", SCOPE_MAX_PENDING="4000") as url:
        httpx.post(f"{url}/calibrate", json={"examples": examples()}).raise_for_status()
        yield url
