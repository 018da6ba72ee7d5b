"""A short run of the fuzzing with the same requests every time; `make fuzz` is the long one."""

import itertools

import pytest

from tests.drills.fuzzing import documented, sending
from tests.drills.fuzzing.attempts import Attempt, attempts
from tests.drills.fuzzing.promises import Answer, problem_faults
from tests.drills.fuzzing.scene import Scene
from tests.drills.fuzzing.tally import Tally
from tests.drills.fuzzing.wire import request_bytes
from tests.unit.api.problems import examples

SEED = 20_261_121


def failures(tally: Tally) -> str:
    return "\n\n".join(
        f"{check} ({count}):\n" + "\n".join(tally.examples[check])
        for check, count in tally.failures.items()
    )


@pytest.fixture(params=["sqlite_scene", "redis_scene"])
def any_scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(request.param)
    return found


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


ITEM_ERROR = b'{"results": [{"id": null, "error": {"code": "invalid_request"}}]}'


@pytest.mark.parametrize(
    ("check", "route", "answer"),
    [
        ("negative_data_rejection", "POST /judge/batch", Answer(200, {}, b'{"results": [{}]}')),
        ("negative_data_rejection", "POST /judge", Answer(200, {}, b"{}")),
        ("positive_data_acceptance", "POST /judge", Answer(422, {}, b'{"code": "x"}')),
        ("positive_data_acceptance", "POST /judge/batch", Answer(200, {}, ITEM_ERROR)),
        ("use_after_free", "GET /calibrations/{name}", Answer(200, {}, b"{}")),
        ("response_schema_conformance", "POST /judge/batch", Answer(200, {}, ITEM_ERROR)),
    ],
)
def test_a_check_that_failed_for_no_known_reason_is_a_failure(
    check: str, route: str, answer: Answer
) -> None:
    assert documented.excuse(check, route, answer) is None


def test_a_check_is_excused_where_the_item_itself_was_refused() -> None:
    answer = Answer(200, {}, ITEM_ERROR)
    assert documented.excuse("negative_data_rejection", "POST /judge/batch", answer) is not None


PROBLEM = (
    b'{"type": "urn:scope-judge:problem:not_found", "title": "x", "status": 404, "detail": "y", '
    b'"code": "not_found"}'
)
KIND = {"content-type": "application/problem+json"}


def test_the_oracle_accepts_a_correct_problem() -> None:
    assert problem_faults(Answer(404, KIND, PROBLEM)) == []


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, {"content-type": "application/json"}, PROBLEM),
        Answer(422, KIND, PROBLEM),
        Answer(404, KIND, PROBLEM.replace(b"not_found", b"nonsense")),
        Answer(404, KIND, PROBLEM.replace(b'"y"', b'""')),
        Answer(404, KIND, PROBLEM.replace(b'"y"', b"NaN")),
        Answer(404, KIND, PROBLEM[:-1]),
        Answer(404, KIND, PROBLEM.replace(b'"y"', b'"' + b"y" * 9000 + b'"')),
        Answer(404, {**KIND, "retry-after": "1"}, PROBLEM),
    ],
    ids=["type", "status", "code", "blank", "NaN", "cut", "long", "Retry-After"],
)
def test_the_oracle_finds_the_faults_of_a_problem(answer: Answer) -> None:
    assert problem_faults(answer) != []


def test_the_oracle_notices_an_answer_that_is_not_as_documented(sqlite_scene: Scene) -> None:
    document = sqlite_scene.document
    kind = {"content-type": "application/json"}
    assert document.faults("GET /healthz", Answer(200, kind, b'{"status": "ok"}')) == []
    wrong = (
        Answer(200, kind, b'{"status": "fine"}'),
        Answer(200, kind, b"{"),
        Answer(200, {"content-type": "text/html"}, b'{"status": "ok"}'),
        Answer(302, kind, b'{"status": "ok"}'),
        Answer(404, KIND, PROBLEM),
    )
    for answer in wrong:
        assert document.faults("GET /healthz", answer) != []


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


@pytest.mark.parametrize(
    ("method", "target", "route"),
    [
        ("DELETE", b"/calibrations/%20?a=?b=", "DELETE /calibrations/{name}"),
        ("GET", b"http://judge/info", None),
        ("GET", b"/calibrations/a/versions?limit=0", "GET /calibrations/{name}/versions"),
        ("PUT", b"/calibrations/a", None),
        ("GET", b"/calibrations//versions", None),
        ("GET", b"/calibrations/a/b", None),
        ("GET", b"//info", None),
        ("GET", b"\\info", None),
        ("", b"", None),
    ],
)
def test_a_target_is_of_the_route_that_the_document_has_for_it(
    sqlite_scene: Scene, method: str, target: bytes, route: str | None
) -> None:
    assert sqlite_scene.document.route_of(method, target) == route


def test_the_same_seed_sends_the_same() -> None:
    first, second = (
        [attempt.content for attempt in itertools.islice(attempts(SEED), 300)] for _ in range(2)
    )
    assert first == second
    third = [attempt.content for attempt in itertools.islice(attempts(SEED + 1), 300)]
    assert first != third
