"""A scripted service for the tests of the commands."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.commands import scripted_application
from tests.unit.cli.listening import listening


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`calibrate` keeps unfinished runs in the working directory."""
    monkeypatch.chdir(tmp_path)


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
