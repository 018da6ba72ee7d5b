"""A scripted service for the tests of the commands."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.commands import BAD, GOOD, SAME, scripted_application
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


@pytest.fixture
def service(clean_url: str) -> str:
    """URL of a service that is sure of half of its labeled pairs, and guesses on the others."""
    examples = [
        {
            "question": f"q{i}",
            "response_a": GOOD,
            "response_b": SAME if i % 2 else BAD,
            "label": "B" if i % 4 == 3 else "A",
        }
        for i in range(200)
    ]
    httpx.post(f"{clean_url}/calibrate", json={"examples": examples}).raise_for_status()
    return clean_url
