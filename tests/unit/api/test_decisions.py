"""Tests of POST /v1/systemone and POST /v1/decisions: questions in, judgments out."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.judges.engines.decision_dialects import DecisionDialect, OpenAiDialect, SystemOneDialect
from tests.serving import client_of
from tests.unit.api.problems import calibrated, hard_examples, problem

TEXTS = {"billing": "quality=3.9", "technical": "quality=0"}
# Under this criterion the judge abstains on close pairs.
HARD = {"calibration": "hard", "alpha": 0.2}
CLOSE = {"billing": "quality=0.01", "technical": "quality=0"}
OPENAI, SYSTEM_ONE = "/v1/decisions", "/v1/systemone"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        await calibrated(client)
        body = {"calibration": "hard", "examples": hard_examples()}
        assert (await client.post("/calibrate", json=body)).is_success
        yield client


def system_one(criteria: dict[str, Any], **fields: Any) -> dict[str, Any]:
    question = {"type": "choice", "instructions": "Which team?", "criteria": criteria}
    return {"model": "any", "state": "A ticket.", "questions": {"team": question}, **fields}


def openai(criteria: dict[Any, Any], **fields: Any) -> dict[str, Any]:
    choices = [{"value": value, "description": text} for value, text in criteria.items()]
    question = {
        "type": "choice",
        "name": "team",
        "instructions": "Which team?",
        "choices": choices,
    }
    return {"model": "any", "input": "A ticket.", "questions": [question], **fields}


BODIES = {SYSTEM_ONE: system_one, OPENAI: openai}


async def answered(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to the only question, with its probabilities by option."""
    response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    answers = response.json()["answers"]
    (answer,) = answers if path.startswith(OPENAI) else answers.values()
    if path.startswith(OPENAI):
        assert answer["name"] == "team"
        answer["probabilities"] = {
            row["value"]: row["probability"] for row in answer["probabilities"]
        }
    found: dict[str, Any] = answer
    return found


@pytest.mark.parametrize("path", BODIES)
async def test_a_choice_is_judged_as_a_comparison(client: httpx.AsyncClient, path: str) -> None:
    answer = await answered(client, path, BODIES[path](TEXTS))
    body = {
        "question": "A ticket.\n\nWhich team?",
        "response_a": TEXTS["billing"],
        "response_b": TEXTS["technical"],
        "id": "team",
    }
    judgment = (await client.post("/judge", json=body)).json()
    del judgment["usage"], judgment["words"]
    assert answer["scope"] == judgment
    assert answer["type"] == "choice"
    assert answer["choice"] == "billing"
    assert answer["probabilities"] == {
        "billing": judgment["p_bar"],
        "technical": 1 - judgment["p_bar"],
    }
    assert answer["confidence"] == judgment["confidence"] * judgment["label_mass"]


@pytest.mark.parametrize("path", BODIES)
async def test_an_abstention_cannot_have_the_name_of_one_of_two_options(
    client: httpx.AsyncClient, path: str
) -> None:
    for name in CLOSE:
        asked = BODIES[path](CLOSE, abstain_as=name, **HARD)
        found = problem(await client.post(path, json=asked), "invalid_comparison")
        assert "`abstain_as` is one of its two options" in found["detail"]


@pytest.mark.parametrize("path", BODIES)
async def test_an_abstention_has_the_name_that_the_caller_wants(
    client: httpx.AsyncClient, path: str
) -> None:
    name = "a person"
    answer = await answered(client, path, BODIES[path](CLOSE, abstain_as=name, **HARD))
    assert answer["choice"] == name
    assert answer["probabilities"].keys() == CLOSE.keys()
    sure = await answered(client, path, BODIES[path](TEXTS, abstain_as=name, **HARD))
    assert sure["choice"] == "billing"


@pytest.mark.parametrize("path", BODIES)
async def test_a_third_option_can_stand_for_an_abstention(
    client: httpx.AsyncClient, path: str
) -> None:
    for criteria, choice in ((CLOSE, "unsure"), (TEXTS, "billing")):
        three = {"unsure": "quality=9", **criteria}
        answer = await answered(client, path, BODIES[path](three, abstain_as="unsure", **HARD))
        assert answer["choice"] == choice
        assert answer["probabilities"].keys() == three.keys()
        assert answer["probabilities"]["unsure"] == 0.0
        assert sum(answer["probabilities"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize("path", BODIES)
async def test_options_may_stand_in_the_url(client: httpx.AsyncClient, path: str) -> None:
    url = f"{path}?alpha=0.2&calibration=hard&abstain_as=nobody"
    assert (await answered(client, url, BODIES[path](CLOSE)))["choice"] == "nobody"
    both = await answered(client, url, BODIES[path](CLOSE, abstain_as="me", alpha=0.25))
    assert both["choice"] == "me"
    assert both["scope"]["alpha"] == 0.25
    none = await answered(client, f"{path}?alpha=null", BODIES[path](CLOSE))
    assert none["scope"]["alpha"] is None
    for bad in ("alhpa=0.2", "alpha=2", "guarantee=marginal&delta=0.1"):
        problem(await client.post(f"{path}?{bad}", json=BODIES[path](CLOSE)), "invalid_request")


async def test_several_questions_are_one_batch(client: httpx.AsyncClient) -> None:
    body = system_one(TEXTS)
    body["questions"]["again"] = {
        "type": "choice",
        "criteria": {"quality=0": None, "quality=5": ""},
    }
    answer = (await client.post(SYSTEM_ONE, json=body)).json()
    assert list(answer["answers"]) == ["team", "again"]
    assert answer["answers"]["again"]["choice"] == "quality=5"
    info = (await client.get("/info")).json()
    assert answer["model"] == info["judge"]
    assert answer["diagnostics"].keys() == {"team", "again"}
    assert answer["diagnostics"]["team"]["label_mass"] == pytest.approx(0.99)
    assert answer["usage"]["output_tokens"] == 0
    listed = openai(TEXTS)
    listed["questions"] *= 2
    answers = (await client.post(OPENAI, json=listed)).json()["answers"]
    assert [one["choice"] for one in answers] == ["billing"] * 2


async def test_json_is_read_as_text_and_conversations_as_turns(client: httpx.AsyncClient) -> None:
    state = {"ticket": "Zoë"}
    for body, question in (
        (system_one(TEXTS, state=state), '{"ticket": "Zoë"}\n\nWhich team?'),
        (system_one(TEXTS, state="", instructions="First."), "First.\n\nWhich team?"),
    ):
        shown = (await answered(client, SYSTEM_ONE, body))["scope"]["p_bar"]
        assert shown == await p_bar_of(client, question)
    turns = [
        {"role": "developer", "content": "Be strict."},
        {"role": "user", "content": [{"type": "input_text", "text": "A ticket."}]},
    ]
    judged = [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": "A ticket.\n\nWhich team?"},
    ]
    shown = (await answered(client, OPENAI, openai(TEXTS, input=turns)))["scope"]["p_bar"]
    assert shown == await p_bar_of(client, judged)


@pytest.mark.parametrize("dialect", [SystemOneDialect(), OpenAiDialect()], ids=BODIES)
async def test_the_service_is_a_decision_server_for_itself(
    client: httpx.AsyncClient, dialect: DecisionDialect
) -> None:
    orders = [("quality=2", "quality=0"), ("quality=0", "quality=2")]
    body = dialect.body("scripted", "A ticket.", orders)
    answer = (await client.post(f"/v1{dialect.path}", json=body)).json()
    read = dialect.read(answer, len(orders))
    assert isinstance(read, list), read
    assert [order.first for order in read] == pytest.approx([order.second for order in read[::-1]])
    assert read[0].first > 0.8


async def p_bar_of(client: httpx.AsyncClient, question: Any) -> float:
    texts = {"response_a": TEXTS["billing"], "response_b": TEXTS["technical"]}
    answer = await client.post("/judge", json={"question": question, **texts})
    found: float = answer.json()["p_bar"]
    return found


async def test_an_option_of_openai_may_be_a_boolean(client: httpx.AsyncClient) -> None:
    answer = await answered(client, OPENAI, openai({True: "quality=0", False: "quality=3"}))
    assert answer["choice"] is False
    assert answer["probabilities"].keys() == {True, False}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("number", [0, 1, 3, 4])
async def test_a_choice_needs_two_options(
    client: httpx.AsyncClient, path: str, number: int
) -> None:
    criteria = {f"option {i}": f"quality={i}" for i in range(number)}
    for body in (BODIES[path](criteria), BODIES[path](criteria, abstain_as="none of these")):
        found = problem(await client.post(path, json=body), "invalid_comparison")
        assert f"it has {number} options" in found["detail"]
        assert "abstain_as" in found["detail"]


async def test_options_of_one_name_are_refused(client: httpx.AsyncClient) -> None:
    body = openai(TEXTS)
    body["questions"][0]["choices"][1]["value"] = "billing"
    assert (
        "same value"
        in problem(await client.post(OPENAI, json=body), "invalid_comparison")["detail"]
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [(SYSTEM_ONE, "noul"), (SYSTEM_ONE, "score"), (OPENAI, "predicate"), (OPENAI, "score")],
)
async def test_another_kind_of_question_is_refused_with_a_sentence(
    client: httpx.AsyncClient, path: str, kind: str
) -> None:
    body = BODIES[path](TEXTS)
    question = body["questions"]["team"] if path == SYSTEM_ONE else body["questions"][0]
    question["type"] = kind
    detail = problem(await client.post(path, json=body), "invalid_request")["detail"]
    assert kind in detail
    assert "calibration covers the choice between two texts only" in detail


@pytest.mark.parametrize(
    ("path", "fields", "place"),
    [
        (SYSTEM_ONE, {"questions": {}}, "questions"),
        (SYSTEM_ONE, {"questions": {f"q{i}": {} for i in range(401)}}, "questions"),
        (
            SYSTEM_ONE,
            {"state": "  ", "questions": {"q": {"type": "choice", "criteria": TEXTS}}},
            "q",
        ),
        (SYSTEM_ONE, {"images": ["data:"]}, "images"),
        (SYSTEM_ONE, {"temperature": 0.5}, "temperature"),
        (SYSTEM_ONE, {"alpha": 2}, "alpha"),
        (SYSTEM_ONE, {"abstain_as": 3}, "abstain_as"),
        (OPENAI, {"questions": []}, "questions"),
        (OPENAI, {"input": [{"role": "tool", "content": "x"}]}, "input"),
        (OPENAI, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        (OPENAI, {"input": 3}, "input"),
    ],
)
async def test_bad_requests_name_the_field(
    client: httpx.AsyncClient, path: str, fields: dict[str, Any], place: str
) -> None:
    answer = await client.post(path, json=BODIES[path](TEXTS, **fields))
    # The document says what the other values are.
    unjudgeable = "input" in fields or "state" in fields
    found = problem(answer, "invalid_comparison" if unjudgeable else "invalid_request")
    assert place in found["detail"]


@pytest.mark.parametrize("path", BODIES)
async def test_a_long_text_is_not_repeated_without_a_limit(path: str) -> None:
    async with client_of(max_pending=600) as client:
        body = BODIES[path](TEXTS, alpha=None) | {
            "state" if path == SYSTEM_ONE else "input": "x" * 10**6
        }
        assert (await client.post(path, json=body)).status_code == 200
        asked = body["questions"]
        many = asked * 3 if path == OPENAI else {f"{i}": asked["team"] for i in range(3)}
        found = problem(await client.post(path, json=body | {"questions": many}), "batch_too_large")
        assert "ask fewer questions" in found["detail"]
