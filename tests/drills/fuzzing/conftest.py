"""The services under fuzzing, one for each kind of store and file of tests: requests leave sets."""

from collections.abc import Iterator

import pytest

from tests.drills.fuzzing import scene
from tests.drills.fuzzing.scene import Scene


@pytest.fixture(scope="module")
def sqlite_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene.sqlite_scene(tmp_path_factory.mktemp("fuzzing-sqlite")) as running:
        yield running


@pytest.fixture(scope="module")
def redis_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene.redis_scene(tmp_path_factory.mktemp("fuzzing-redis")) as running:
        yield running
