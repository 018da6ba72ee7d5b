"""One pair of replicas for all tests of this package: a start takes longer than most tests."""

from collections.abc import Iterator

import pytest

from tests.drills.replicas.fleet import Fleet, fleet_of


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(tmp_path_factory.mktemp("fleet")) as running:
        yield running
