"""Every bad input of the corpus gets its expected answer."""

import json

import pytest

from tests.serving import client_of
from tests.unit.api.corpus import Case, cases
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
