"""The start of decision servers: dialect, rounding, and what is refused."""

from typing import Any

import pytest

from app.core.errors import StartupError
from tests.unit.judges.engines.decisions_fake import FakeDecisions
from tests.unit.judges.engines.decisions_scene import (
    PROBES,
    QUESTION,
    SECRET,
    identity_of,
    servers_of,
)
from tests.unit.judges.engines.openai_fake import response, serving

OPENAI = {"path": "/decisions", "shape": "openai"}


async def test_a_restart_on_another_port_changes_nothing_of_the_identity() -> None:
    first, second = await identity_of(FakeDecisions()), await identity_of(FakeDecisions())
    assert first == second
    assert (first.model, first.answered_as) == ("the-judge", "the-judge-1.0.0")
    assert (first.hosts, first.dialect) == (("127.0.0.1",), "systemone")
    assert (first.questions_together, first.decimals) == (2, None)


@pytest.mark.parametrize(
    ("served", "dialect", "together"),
    [
        ({}, "systemone", 2),
        ({"most": 1}, "systemone", 1),
        ({"most": 1, "refusal": 400}, "systemone", 1),
        (OPENAI, "openai", 2),
        ({**OPENAI, "most": 1}, "openai", 1),
        ({"path": "/decisions"}, "systemone at /decisions", 2),
        ({"path": "/decisions", "refusal": 400}, "systemone at /decisions", 2),
    ],
)
async def test_the_dialect_is_found_by_asking(
    served: dict[str, Any], dialect: str, together: int
) -> None:
    found = await identity_of(FakeDecisions(**served))
    assert (found.dialect, found.questions_together) == (dialect, together)


@pytest.mark.parametrize("decimals", [1, 2, 4, 7])
async def test_the_rounding_is_read_off_the_first_answers(decimals: int) -> None:
    assert (await identity_of(FakeDecisions(decimals=decimals))).decimals == decimals


def with_zeros(answer: dict[str, Any]) -> dict[str, Any]:
    for one in answer["answers"].values():
        for option in one["probabilities"]:
            one["probabilities"][option] = float(option == one["choice"])
    return answer


def without_version(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "model"}


def other_versions() -> FakeDecisions:
    """A server that answers as another model each time."""
    server = FakeDecisions()
    server.change = lambda answer: {**answer, "model": f"v{len(server.asked)}"}
    return server


def without_the_second(answer: dict[str, Any]) -> dict[str, Any]:
    answer["answers"].pop("q2", None)
    return answer


HTML = response(200, b"<!doctype html><title>Sign in</title>")
MOVED = response(302, b"", headers="Location: http://127.0.0.1:9/login\r\n")


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ([FakeDecisions(path="/elsewhere")], "POST /systemone with status 404, POST /decisions"),
        ([FakeDecisions(name="other")], "SCOPE_MODEL names"),
        ([FakeDecisions(key=SECRET)], "refuses SCOPE_OPENAI_API_KEY"),
        ([FakeDecisions(trouble=lambda p, b: response(501, b""))], "with status 501"),
        # A fault of a proxy that may pass does not decide the dialect.
        ([FakeDecisions(trouble=lambda p, b: response(502, b""))], "with status 502"),
        ([FakeDecisions(trouble=lambda p, b: MOVED)], "with status 302"),
        ([FakeDecisions(trouble=lambda p, b: response(429, b""))], "is busy"),
        ([FakeDecisions(trouble=lambda p, b: HTML)], "did not answer with a JSON object"),
        ([FakeDecisions(change=lambda answer: [])], "did not answer with a JSON object"),
        ([FakeDecisions(change=without_version)], "does not say which model answered"),
        ([FakeDecisions(change=without_the_second)], "did not answer exactly the questions"),
        ([FakeDecisions(change=with_zeros)], "0 and 1 only"),
        ([other_versions()], "name one version in SCOPE_MODEL"),
        ([FakeDecisions(), FakeDecisions(version="v2")], "'the-judge-1.0.0' and as 'v2'"),
        ([FakeDecisions(), FakeDecisions(path="/decisions", shape="openai")], "take different"),
    ],
)
async def test_a_start_that_cannot_work_is_refused_in_a_sentence(
    servers: list[FakeDecisions], says: str
) -> None:
    with pytest.raises(StartupError, match=says) as caught:
        await identity_of(*servers, api_key="wrong-" + SECRET[::-1])
    assert SECRET not in str(caught.value)
    assert SECRET[::-1] not in str(caught.value)


async def test_an_unreachable_server_is_named() -> None:
    there, gone = FakeDecisions(), FakeDecisions()
    async with serving(there, gone):
        await gone.stop()
        remote = servers_of(there, gone)
        with pytest.raises(StartupError, match=f"{gone.url} cannot be reached"):
            await remote.start(QUESTION, PROBES)
        await remote.stop()
