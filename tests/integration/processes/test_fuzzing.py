"""A short run of the fuzzing with the same requests every time; `make fuzz` is the long one."""

import itertools
from collections.abc import Iterator

import pytest

from tests.drills.fuzzing import damage, documented, scene
from tests.drills.fuzzing.scene import Scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.fuzzing.wire import Connection, request_bytes
from tests.unit.api.corpus import cases
from tests.unit.api.test_corpus import outcome

SEED = 20_261_121
# The slowest takes 1 s on a quiet machine and 5 s on a busy one; bodies of 8 MB once took a minute.
SLOWEST_S = 30.0


def failures(tally: Tally) -> str:
    return "\n\n".join(
        f"{check} ({count}):\n" + "\n".join(tally.examples[check])
        for check, count in tally.failures.items()
    )


@pytest.fixture(scope="module")
def sqlite_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene.sqlite_scene(tmp_path_factory.mktemp("fuzzing-sqlite")) as running:
        yield running


@pytest.fixture(scope="module")
def redis_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene.redis_scene(tmp_path_factory.mktemp("fuzzing-redis")) as running:
        yield running


@pytest.fixture(params=["sqlite_scene", "redis_scene"])
def any_scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(request.param)
    return found


# First: the other tests leave sets in the service.
def test_bad_inputs_get_the_same_answers_over_a_socket_and_soon(sqlite_scene: Scene) -> None:
    faults = []
    for case in cases():
        sent = case.content
        if not case.whole:
            headers = ((b"Content-Type", case.content_type.encode()),)
            sent = request_bytes(case.method, case.path.encode(), case.content, headers=headers)
        connection = Connection(sqlite_scene.server.port, timeout_s=SLOWEST_S)
        connection.send(sent)
        ended = connection.end(case.method)
        if outcome(ended.answer) != (case.status, case.code) or ended.seconds >= SLOWEST_S:
            faults.append((case.name, outcome(ended.answer), ended.seconds))
    assert faults == []
    assert sqlite_scene.faults() == []


def test_requests_made_from_the_document_are_answered_as_documented(sqlite_scene: Scene) -> None:
    tally = Tally()
    documented.run(sqlite_scene, tally, examples=3, seed=None)
    assert not tally.failures, failures(tally)
    assert tally.requests > 400
    assert set(sqlite_scene.document.routes) == set(tally.routes)


def test_damaged_bytes_are_answered_or_refused(any_scene: Scene) -> None:
    tally = Tally()
    damage.send(any_scene, itertools.islice(damage.requests(SEED, any_scene.key), 450), tally)
    assert not tally.failures, failures(tally)
    # Some requests are sound enough to be judged, and some are refused by us and not by uvicorn.
    assert tally.statuses["200"] > 20
    assert tally.statuses["422"] > 20


def test_a_service_that_was_fuzzed_calibrates_and_judges_as_before(any_scene: Scene) -> None:
    assert any_scene.faults() == []
    assert any_scene.calibration_faults() == []
