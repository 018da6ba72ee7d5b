"""A scripted service for the tests of the commands."""

from collections.abc import Iterator

import httpx
import pytest

from tests.unit.cli.commands import scripted_application
from tests.unit.cli.listening import listening


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """URL of the service."""
    with listening(scripted_application()) as url:
        yield url


@pytest.fixture
def clean_url(url: str) -> str:
    """URL of a service without a calibration set."""
    for each in httpx.get(f"{url}/calibrations").json()["calibrations"]:
        httpx.delete(f"{url}/calibrations/{each['name']}")
    return url
