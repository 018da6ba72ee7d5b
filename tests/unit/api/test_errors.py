"""Tests of every error code through HTTP: status, form, and that it contains no text."""

import itertools
import logging
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.keys import Keys
from app.api.problems import STATUS
from app.core.errors import (
    EngineUnavailableError,
    MethodNotAllowedError,
    OverloadedError,
    PromptTooLongError,
    RequestError,
    ScopeJudgeError,
    StartupError,
    StoreCorruptError,
    UnavailableError,
)
from app.judges.engines.scripted import Script, ScriptedEngine
from app.ports import Head, LabelLogits, Prompt
from app.stores.memory import MemoryStore
from app.stores.sqlite import SqliteStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples, problem

MARKER = "xyzzy-secret-text"


def concrete_errors(error: type[ScopeJudgeError]) -> Iterator[type[ScopeJudgeError]]:
    below = error.__subclasses__()
    if not below:
        yield error
    for each in below:
        yield from concrete_errors(each)


def test_the_status_table_has_exactly_the_concrete_errors() -> None:
    assert set(STATUS) == set(concrete_errors(ScopeJudgeError)) - {StartupError}
    codes = [error.code for error in STATUS]
    assert len(set(codes)) == len(codes)


def answers(found: LabelLogits | RequestError) -> Script:
    return lambda prompt: found


def raises(error: Exception) -> Script:
    def script(prompt: Prompt) -> LabelLogits:
        raise error

    return script


PLAIN = comparison(alpha=None, question=MARKER)


def made(error: type[ScopeJudgeError]) -> ScopeJudgeError:
    if error is MethodNotAllowedError:
        return error("no", allowed=("POST",))
    return error("no", retry_after_s=7) if issubclass(error, UnavailableError) else error("no")


@pytest.mark.parametrize("error", STATUS, ids=lambda error: error.code)
async def test_each_code_is_answered_as_a_problem_and_counted(
    error: type[ScopeJudgeError], caplog: pytest.LogCaptureFixture
) -> None:
    """Other tests check by `problem` what leads to each code."""
    caplog.set_level(logging.DEBUG)
    async with client_of(ScriptedEngine(raises(made(error)))) as client:
        response = await client.post("/judge", json=PLAIN)
        problem(response, error.code)
        metrics = (await client.get("/metrics")).text
    assert f'scope_problems_total{{code="{error.code}"}} 1.0' in metrics
    for where in (response.text, caplog.text, metrics):
        assert MARKER not in where
    if issubclass(error, UnavailableError):
        assert response.headers["retry-after"] == "7"
    if error is MethodNotAllowedError:
        assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (raises(ZeroDivisionError(MARKER)), "internal"),
        (raises(StoreCorruptError("no")), "store_corrupt"),
        (answers(LabelLogits(math.nan, math.nan)), "judgment_failed"),
    ],
)
async def test_the_log_has_the_traceback_of_an_unexpected_error_and_no_text(
    script: Script, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(ScriptedEngine(script)) as client:
        answer = await client.post("/judge", json=PLAIN)
        problem(answer, code)
    assert "unexpected" in caplog.text
    assert ".py" in caplog.text
    assert MARKER not in caplog.text + answer.text


async def test_a_set_that_cannot_be_read_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    head, blob = Head("x", 1), MARKER.encode()
    await store.write("default", head, blob=blob, thresholds={}, record="", expected=None)
    async with client_of(store=store) as client:
        answer = await client.post("/judge", json=comparison())
        problem(answer, "store_corrupt")
    assert MARKER not in caplog.text + answer.text


async def test_without_a_readable_key_file_nobody_is_answered(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", entry("reader", []))
    # Every reading of the clock is a second later.
    keys = Keys(file, clock=itertools.count().__next__)
    file.unlink()
    async with client_of(keys=keys) as client:
        answer = await client.get("/info", headers=header_of("reader"))
        problem(answer, "keys_unavailable")


async def test_an_engine_that_is_down_fails_a_batch_as_a_whole_and_writes_nothing() -> None:
    async with client_of(ScriptedEngine(raises(EngineUnavailableError("down")))) as client:
        batch = {"alpha": None, "comparisons": [comparison(), comparison(question=" ")]}
        problem(await client.post("/judge/batch", json=batch), "engine_unavailable")
        body = {"examples": examples(2)}
        problem(await client.post("/calibrate", json=body), "engine_unavailable")
        assert (await client.get("/calibrations")).json() == {
            "calibrations": [],
            "next_after": None,
        }


@pytest.mark.parametrize("marker_in", ["question", "response_a", "response_b", "id"])
async def test_no_log_metric_or_answer_contains_a_text(
    marker_in: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with client_of() as client:
        response = await client.post("/judge", json=comparison(alpha=None, **{marker_in: MARKER}))
        assert response.status_code == 200
        metrics = (await client.get("/metrics")).text
    assert MARKER not in caplog.text + metrics
    assert (MARKER in response.text) == (marker_in == "id")


# Fault -> the judge, and the code that /readyz answers with.
LOST: dict[str, tuple[ScriptedEngine, str]] = {
    "engine down": (
        ScriptedEngine(raises(EngineUnavailableError("down"))),
        "engine_unavailable",
    ),
    "engine full": (ScriptedEngine(raises(OverloadedError("full"))), "overloaded"),
    "engine hangs": (ScriptedEngine(latency_s=3600.0), "engine_unavailable"),
    "store closed": (ScriptedEngine(), "store_unavailable"),
    "nan": (ScriptedEngine(answers(LabelLogits(math.nan, 0.0))), "judgment_failed"),
    "no context": (ScriptedEngine(answers(PromptTooLongError("x"))), "judgment_failed"),
}


@pytest.mark.parametrize("fault", LOST)
async def test_a_service_that_cannot_judge_is_alive_but_not_ready(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.judging.readiness.SILENT_S", 0.5)
    engine, code = LOST[fault]
    store = SqliteStore(tmp_path / "sets.db")
    async with client_of(engine, store) as client:
        if fault == "store closed":
            await store.close()
        problem(await client.get("/readyz"), code)
        for path in ("/healthz", "/metrics", "/info"):
            assert (await client.get(path)).status_code == 200
    await store.close()


async def test_equal_responses_are_refused_as_an_example_unless_they_tie() -> None:
    rows = examples(3)
    rows[1]["response_b"] = rows[1]["response_a"]
    async with client_of() as client:
        found = (await client.post("/calibrate", json={"examples": rows})).json()
        rows[1]["label"] = "tie"
        tied = (await client.post("/calibrate", json={"examples": rows})).json()
    assert (found["added"], found["failed"]) == (2, 1)
    assert "the responses are equal, and the label A prefers one" in str(found["errors"])
    assert (tied["ties"], tied["failed"]) == (1, 0)
