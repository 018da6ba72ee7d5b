"""The pool of `scope-judge label` checks the shape of each answer of a service."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from app.cli.console import CommandError
from app.cli.labelling.pool import Level, Pool
from app.cli.service_client import connected
from app.service.labelling.answers import Answers
from app.service.labelling.pairs import BlindPair
from scope_judge import answers as records
from tests.unit.cli.test_wrong_answers import with_a_wrong_part
from tests.unit.clients.planned import Handler, PlannedService, serving
from tests.unit.clients.test_answers import example

ERROR = example(records.ExampleError)
POOLED = {**example(records.PoolReport), "digests": ["d"], "errors": []}
TAKEN = {**example(records.CalibrationReport), "errors": []}
DETAIL = example(records.CalibrationDetail)


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.results: dict[str, dict[str, Any]] = {}

    def append(self, results: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self.results |= dict(results)


def new_answers() -> Answers:
    fields = {"question": "q", "response_a": "a", "response_b": "b"}
    return Answers(Kept(), [BlindPair(key="k", fields=fields, left="A")])


def label(pool: Pool, answers: Answers) -> None:
    answers.add_digests({"k": "d"})
    answers.record(answers.pair("k"), "A")
    pool.post(answers)


# Use of a pool -> an answer that fits it, and answers that fit the type and not the request.
USES: dict[str, tuple[Callable[[Pool, Answers], Any], Any, list[Any]]] = {
    "fill": (
        lambda pool, answers: pool.fill(answers, [pair.key for pair in answers.pairs]),
        POOLED,
        [
            {**POOLED, "digests": []},
            {**POOLED, "digests": ["d", "e"]},
            {**POOLED, "digests": [None], "errors": [{**ERROR, "index": 7}]},
            {**POOLED, "digests": [None], "errors": [{**ERROR, "index": -1}]},
        ],
    ),
    "coverage": (
        lambda pool, answers: pool.coverage(),
        {**DETAIL, "requested": DETAIL["requested"][:1]},
        [{**DETAIL, "requested": []}],
    ),
    "post": (label, TAKEN, []),
}


@pytest.mark.parametrize("name", USES)
def test_an_answer_of_another_shape_ends_in_words(name: str) -> None:
    use, fitting, unfitting = USES[name]

    def answered(answer: Any) -> None:
        def act(handler: Handler, body: dict[str, Any]) -> None:
            handler.send(200, json.dumps(answer).encode())

        service.rule = act
        with connected(service.url) as client:
            use(Pool(client, "x", Level(alpha=0.1, delta=0.1)), new_answers())

    told = list[str]()
    with serving(PlannedService()) as service:
        for wrong in (None, [], 1, *unfitting, *with_a_wrong_part(fitting)):
            try:
                answered(wrong)
            except CommandError as exc:
                told.append(exc.detail)
        answered(fitting)
    assert len(told) > 5 + len(unfitting)
    assert all("unexpected_answer: the answer" in detail for detail in told)
