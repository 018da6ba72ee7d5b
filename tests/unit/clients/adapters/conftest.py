"""The service of the adapters' tests."""

from collections.abc import Iterator

import pytest

from tests.unit.clients.adapters.service import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as url:
        yield url
