"""Real clients of decision servers, asked for a choice that is sure and for one that is close."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from langchain_openai.decisions import Choice, OpenAIDecisions
from pydantic_ai.models.decision import ChoiceQuestion, DecisionRequest
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider

from tests.unit.api.problems import hard_examples
from tests.unit.clients.conftest import running

SURE = {"first": "quality=3.9", "second": "quality=0"}
CLOSE = {"first": "quality=0.01", "second": "quality=0"}
INSTRUCTIONS = "Which answer is better?"
# Under this criterion the judge abstains on close pairs.
HARD: dict[str, Any] = {"calibration": "hard", "alpha": 0.2}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """URL of a service with the set "hard", whose judge is wrong on half of the close pairs."""
    with running() as url:
        body = {"calibration": "hard", "examples": hard_examples()}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
        yield url


@pytest.fixture
async def model(url: str) -> AsyncIterator[SystemOneModel]:
    async with SystemOneProvider(base_url=url, api_key="none") as provider:
        yield SystemOneModel("any", provider=provider)


async def test_pydantic_ai_gets_its_answers(model: SystemOneModel) -> None:
    def asked(criteria: dict[str, Any]) -> DecisionRequest:
        question = ChoiceQuestion(criteria=criteria, instructions=INSTRUCTIONS)
        return DecisionRequest(state="Which?", questions={"best": question})

    response = await model.decide(asked(SURE), {"extra_body": HARD})
    answer: Any = response.answers["best"]
    assert (answer.choice, response.model_name) == ("first", "scripted")
    three = {**CLOSE, "unsure": None}
    settings: Any = {"extra_body": {**HARD, "abstain_as": "unsure"}}
    answer = (await model.decide(asked(three), settings)).answers["best"]
    assert answer.choice == "unsure"
    assert answer.probabilities["unsure"] == 0.0


def test_openai_gets_its_answers_with_the_scope(url: str) -> None:
    def asked(criteria: dict[str, str], **options: Any) -> Any:
        choices: Any = [{"value": value, "description": text} for value, text in criteria.items()]
        question: Any = {"type": "choice", "instructions": INSTRUCTIONS, "choices": choices}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            decision = client.decisions.create(
                model="any", input="Which?", questions=[question], extra_body={**HARD, **options}
            )
        assert decision.usage.output_tokens == 0
        (answer,) = decision.answers
        return answer

    sure, close = asked(SURE), asked(CLOSE)
    assert (sure.choice, sure.scope["verdict"]) == ("first", "A")
    assert (close.choice, close.scope["verdict"], close.scope["reason"]) == (
        "first",
        "abstain",
        "uncertain",
    )
    assert asked(CLOSE, abstain_as="nobody").choice == "nobody"


@pytest.mark.filterwarnings("ignore:The class `OpenAIDecisions` is in beta")
def test_langchain_gets_its_answers_with_options_in_the_url(url: str) -> None:
    options = {"calibration": "hard", "alpha": "0.2", "abstain_as": "nobody"}
    decisions = OpenAIDecisions(
        model="any", base_url=f"{url}/v1", api_key="none", default_query=options
    )
    for criteria, expected in ((SURE, "first"), (CLOSE, "nobody")):
        question = Choice(instructions=INSTRUCTIONS, choices=criteria)
        answer = decisions.invoke({"input": "Which?", "questions": {"best": question}})
        assert answer.choices["best"].choice == expected
        assert answer.choices["best"].probabilities.keys() == criteria.keys()
