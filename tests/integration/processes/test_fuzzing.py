"""A short run of the fuzzing with the same requests every time; `make fuzz` is the long one."""

import itertools
from collections.abc import Iterator

import pytest

from tests.drills.fuzzing import documented, scene, sending
from tests.drills.fuzzing.attempts import Attempt, attempts
from tests.drills.fuzzing.scene import Scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.fuzzing.wire import Connection, request_bytes
from tests.unit.api.corpus import cases
from tests.unit.api.problems import examples
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


def test_undocumented_bytes_are_answered_or_refused(any_scene: Scene) -> None:
    tally = Tally()
    some = itertools.islice(attempts(SEED, key=any_scene.key), 450)
    sending.send_all(any_scene, some, tally)
    assert not tally.failures, failures(tally)
    assert tally.requests == 450
    # Some attempts are valid enough to be judged.
    assert tally.statuses["200"] > 20


def test_bodies_that_never_end_are_answered_once_they_are_too_slow(sqlite_scene: Scene) -> None:
    tally = Tally()
    sending.hold_open(sqlite_scene, tally, times=2)
    assert not tally.failures, failures(tally)
    assert tally.statuses == {"408": 4, "200": 2}


def test_a_service_that_was_fuzzed_calibrates_and_judges_as_before(any_scene: Scene) -> None:
    assert any_scene.faults() == []
    assert any_scene.calibration_faults() == []


@pytest.mark.parametrize(
    ("query", "statuses"), [(b"", {"204": 1, "404": 1}), (b"?a=" * 300, {"422": 2})]
)
def test_a_path_that_is_odd_only_in_its_query_is_answered_as_its_route(
    sqlite_scene: Scene, query: bytes, statuses: dict[str, int]
) -> None:
    # An earlier request may have planned looks for this set, which take no further pairs.
    body = {"calibration": "fuzz", "examples": examples(4), "replace": True}
    sqlite_scene.server.client.post("/calibrate", json=body).raise_for_status()
    tally = Tally()
    sent = request_bytes("DELETE", b"/calibrations/fuzz" + query)
    sending.send_all(sqlite_scene, [Attempt("odd path", None, "DELETE", sent)] * 2, tally)
    assert not tally.failures, failures(tally)
    assert tally.statuses == statuses


@pytest.mark.parametrize("target", [b"http://judge/info", b"/info#x"])
def test_a_target_with_an_origin_or_a_fragment_has_no_route(
    sqlite_scene: Scene, target: bytes
) -> None:
    tally = Tally()
    sent = request_bytes("GET", target)
    sending.send_all(sqlite_scene, [Attempt("odd path", None, "GET", sent)], tally)
    assert not tally.failures, failures(tally)
    assert tally.statuses == {"404": 1}
