"""Every bad input of the corpus gets its expected answer."""

import json

import pytest

from tests.serving import client_of
from tests.unit.api.corpus import FOLDER, Case, cases
from tests.wire import NO_HTTP, Answer, NoAnswer, problem_faults

CASES = cases()


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


def test_every_file_of_the_corpus_is_sent() -> None:
    table = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))
    named = {entry["file"] for entry in table if "file" in entry}
    found = {file.name for file in FOLDER.iterdir() if file.suffix in (".json", ".http")}
    assert found == named | {"table.json"}
