"""One pair of replicas for each file of tests: a start takes longer than most tests."""

from collections.abc import Iterator

import pytest

from tests.drills.replicas.fleet import Fleet, fleet_of


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_of(tmp_path_factory.mktemp("fleet")) as running:
        yield running
