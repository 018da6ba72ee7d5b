"""A scripted service for the tests of the commands."""

from collections.abc import Iterator

import httpx
import pytest

from app.main import create
from tests.unit.cli.listening import listening

ENVIRONMENT = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """URL of the service."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        application = create()
    with listening(application) as url:
        yield url


@pytest.fixture
def clean_url(url: str) -> str:
    """URL of a service without a calibration set."""
    for each in httpx.get(f"{url}/calibrations").json()["calibrations"]:
        httpx.delete(f"{url}/calibrations/{each['name']}")
    return url
