"""Every bad input of the corpus gets its expected answer, in the process and over a socket."""

import json

import pytest

from tests.drills.fuzzing.corpus import FOLDER, Case, cases
from tests.drills.fuzzing.promises import NO_HTTP, Answer, problem_faults
from tests.drills.fuzzing.scene import Scene
from tests.drills.fuzzing.wire import Connection, NoAnswer, request_bytes
from tests.serving import client_of

CASES = cases()
# The slowest takes 1 s on a quiet machine and 5 s on a busy one; bodies of 8 MB once took a minute.
SLOWEST_S = 30.0


def outcome(answer: Answer | NoAnswer) -> tuple[int, str]:
    """Status and code, as in the table."""
    if isinstance(answer, NoAnswer):
        return 0, answer.value
    if (answer.status, answer.body) == NO_HTTP:
        return answer.status, "no_http"
    if answer.status >= 400 and answer.body:
        assert problem_faults(answer) == []
        return answer.status, json.loads(answer.body)["code"]
    return answer.status, "ok"


@pytest.mark.parametrize("case", [case for case in CASES if not case.whole], ids=lambda c: c.name)
async def test_a_bad_input_gets_its_answer(case: Case) -> None:
    async with client_of() as client:
        headers = {"Content-Type": case.content_type}
        response = await client.request(
            case.method, case.path, content=case.content, headers=headers
        )
        answer = Answer(response.status_code, response.headers, response.content)
        assert outcome(answer) == (case.status, case.code)
        assert (await client.get("/readyz")).json() == {"status": "ready"}


def test_bad_inputs_get_the_same_answers_over_a_socket_and_soon(sqlite_scene: Scene) -> None:
    faults = []
    for case in CASES:
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


def test_every_file_of_the_corpus_is_sent() -> None:
    table = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))
    named = {entry["file"] for entry in table if "file" in entry}
    found = {file.name for file in FOLDER.iterdir() if file.suffix in (".json", ".http")}
    assert found == named | {"table.json"}
