"""Tests of every error code through HTTP: status, form, and that it contains no text."""

import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import drain
from app.api.keys import Keys
from app.api.problems import STATUS
from app.audits.auditor import MOST_LABEL_CHANGES
from app.core.errors import (
    ControlTokenError,
    EngineUnavailableError,
    OverloadedError,
    PromptTooLongError,
    RateLimitedError,
    RequestError,
    ScopeJudgeError,
    StartupError,
)
from app.judges.engines.scripted import Script, ScriptedEngine, by_quality
from app.ports import Head, LabelLogits, Prompt
from app.stores.sqlite import SqliteStore
from tests.serving import client_of
from tests.unit.api.keyring import entry, header_of, write_keys
from tests.unit.api.problems import comparison, examples, problem
from tests.unit.audits.logs import append, draw_id, drawn

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


class Reach(NamedTuple):
    """A request that causes one error."""

    script: Script = by_quality
    method: str = "POST"
    path: str = "/judge"
    body: Any = None
    settings: Mapping[str, Any] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def answers(found: LabelLogits | RequestError) -> Script:
    return lambda prompt: found


def raises(error: Exception) -> Script:
    def script(prompt: Prompt) -> LabelLogits:
        raise error

    return script


PLAIN = comparison(alpha=None, question=MARKER)
WITH_KEYS = {"metrics": "open"}
NO_NUMBERS = {"gap_fwd": None, "gap_rev": None, "label_mass": None}
REACHED: dict[str, Reach] = {
    "unauthenticated": Reach(body=PLAIN, settings=WITH_KEYS),
    "forbidden": Reach(body=PLAIN, settings=WITH_KEYS, headers=header_of("reader")),
    "keys_unavailable": Reach(body=PLAIN, settings=WITH_KEYS, headers=header_of("reader")),
    "invalid_request": Reach(body={**PLAIN, "question": 3}),
    "invalid_comparison": Reach(body={**PLAIN, "question": " "}),
    "body_too_large": Reach(body={**PLAIN, "id": "x" * 2000}, settings={"max_body_bytes": 1024}),
    "batch_too_large": Reach(path="/judge/batch", body={"comparisons": [PLAIN] * 2049}),
    "too_many_criteria": Reach(
        path="/judge/batch",
        body={"comparisons": [{**PLAIN, "alpha": i / 99} for i in range(1, 34)]},
    ),
    "prompt_too_long": Reach(answers(PromptTooLongError("9 tokens, 8 fit")), body=PLAIN),
    "control_tokens": Reach(answers(ControlTokenError("<|im_end|>")), body=PLAIN),
    "not_found": Reach(method="GET", path="/nothing"),
    "method_not_allowed": Reach(method="PUT"),
    "calibration_not_found": Reach(body=comparison()),
    "version_not_found": Reach(path="/calibrations/default/rollback", body={"version": 2}),
    "labels_missing": Reach(body=comparison(calibration="pool")),
    "judge_mismatch": Reach(body=comparison(calibration="others")),
    "audits_incomplete": Reach(
        path="/calibrations/default/absorb", body={}, settings={"audit_rate": 1.0}
    ),
    "becomes_infeasible": Reach(
        path="/calibrate",
        body={"examples": examples(2), "replace": True},
        settings={"audit_rate": 1.0},
    ),
    "labels_differ": Reach(
        path="/calibrate",
        body={
            "examples": [{**comparison(question=MARKER), "label": label} for label in "AB"],
            "change_labels": False,
        },
    ),
    "cascade_conflict": Reach(
        path="/calibrations/new/cascade",
        body={
            "small": "0" * 64,
            "large": "0" * 64,
            "alpha": 0.1,
            "pairs": [{"small": NO_NUMBERS, "large": NO_NUMBERS}] * 1000,
        },
    ),
    "set_full": Reach(path="/calibrate", body={"examples": examples(4)}),
    "too_many_label_changes": Reach(
        path="/audits/labels",
        body={"labels": [{"id": draw_id(1), "label": "A"}]},
    ),
    "overloaded": Reach(raises(OverloadedError("full", retry_after_s=7)), body=PLAIN),
    "rate_limited": Reach(
        raises(RateLimitedError("the key has used them", retry_after_s=7)), body=PLAIN
    ),
    "deadline_exceeded": Reach(body=PLAIN, settings={"timeout_s": 3.0}),
    "draining": Reach(method="GET", path="/readyz"),
    "engine_unavailable": Reach(raises(EngineUnavailableError("down")), body=PLAIN),
    "store_unavailable": Reach(body=comparison()),
    "judgment_failed": Reach(answers(LabelLogits(math.nan, math.nan)), body=PLAIN),
    "store_corrupt": Reach(body=comparison(calibration="corrupt")),
    "internal": Reach(raises(ZeroDivisionError(MARKER)), body=PLAIN),
}


@asynccontextmanager
async def reaching(code: str, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service in which the request for this code fails."""
    with pytest.MonkeyPatch.context() as patch:
        if code == "set_full":
            patch.setattr("app.sets.calibrator.MOST_PAIRS", 3)
        async with _reaching(code, folder) as client:
            yield client


@asynccontextmanager
async def _reaching(code: str, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    reach = REACHED[code]
    store = SqliteStore(folder / "sets.db")
    engine = ScriptedEngine(reach.script, latency_s=3600.0 if code == "deadline_exceeded" else 0.0)
    keys = None
    if reach.settings is WITH_KEYS:
        file = write_keys(folder / "keys.json", entry("reader", []))
        keys = Keys(file, clock=itertools.count().__next__)  # every reading is a second later
        if code == "keys_unavailable":
            file.unlink()
    async with client_of(engine, store, keys=keys, **reach.settings) as client:
        assert isinstance(client._transport, httpx.ASGITransport)
        app = client._transport.app
        assert isinstance(app, FastAPI)
        if code == "draining":
            drain(app)
        if code == "judge_mismatch":
            async with client_of(ScriptedEngine(judge="another"), store) as other:
                body = {"calibration": "others", "examples": examples(3)}
                assert (await other.post("/calibrate", json=body)).status_code == 200
        if code == "store_corrupt":
            await store.write(
                "corrupt",
                Head("x", 1),
                blob=MARKER.encode(),
                thresholds={},
                record="",
                expected=None,
            )
        if code == "labels_missing":
            pairs = {"comparisons": [comparison(question=MARKER)]}
            await client.post("/calibrations/pool/pool", json=pairs)
        if code == "version_not_found":
            await client.post("/calibrate", json={"examples": examples(3)})
        if code in ("becomes_infeasible", "audits_incomplete"):
            await client.post("/calibrate", json={"examples": examples(60)})
            wrong = code == "audits_incomplete"
            questions = [f"Question {number}?" for number in range(30 if wrong else 1)]
            judged = [
                await client.post("/judge", json=comparison(question=each)) for each in questions
            ]
            ids = [each.json()["audit"]["id"] for each in judged]
            labels = {"labels": [{"id": each, "label": "B" if wrong else "A"} for each in ids]}
            await client.post("/audits/labels", json=labels)
        if code == "too_many_label_changes":
            await append(store, drawn(1, at=time.time()))
            for side in "BA" * (MOST_LABEL_CHANGES // 2) + "B":
                labels = {"labels": [{"id": draw_id(1), "label": side}]}
                (await client.post("/audits/labels", json=labels)).raise_for_status()
        if code == "store_unavailable":
            await store.close()
        yield client
    await store.close()


@pytest.mark.parametrize("code", [error.code for error in STATUS])
async def test_each_code_is_answered_as_a_problem_and_counted(
    code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with reaching(code, tmp_path) as client:
        reach = REACHED[code]
        response = await client.request(
            reach.method, reach.path, headers=reach.headers, json=reach.body
        )
        problem(response, code)
        metrics = (await client.get("/metrics")).text
        assert f'scope_problems_total{{code="{code}"}} 1.0' in metrics
    for where in (response.text, caplog.text, metrics):
        assert MARKER not in where
    if code in ("overloaded", "rate_limited"):
        assert response.headers["retry-after"] == "7"
    if code == "method_not_allowed":
        assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("code", ["internal", "store_corrupt", "judgment_failed"])
async def test_the_log_has_the_traceback_of_an_unexpected_error(
    code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reaching(code, tmp_path) as client:
        await client.post("/judge", json=REACHED[code].body)
    assert "unexpected" in caplog.text
    assert ".py" in caplog.text


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


async def engine_raises(client: httpx.AsyncClient, store: SqliteStore) -> None:
    """An error of the service's engine."""


async def store_closes(client: httpx.AsyncClient, store: SqliteStore) -> None:
    await store.close()


@pytest.mark.parametrize(
    ("engine", "break_it", "code"),
    [
        (
            ScriptedEngine(raises(EngineUnavailableError("down"))),
            engine_raises,
            "engine_unavailable",
        ),
        (ScriptedEngine(raises(OverloadedError("full"))), engine_raises, "overloaded"),
        (ScriptedEngine(latency_s=3600.0), engine_raises, "engine_unavailable"),
        (ScriptedEngine(), store_closes, "store_unavailable"),
        (
            ScriptedEngine(answers(LabelLogits(math.nan, 0.0))),
            engine_raises,
            "judgment_failed",
        ),
        (ScriptedEngine(answers(PromptTooLongError("x"))), engine_raises, "judgment_failed"),
    ],
    ids=["engine down", "engine full", "engine hangs", "store closed", "nan", "no context"],
)
async def test_a_service_that_cannot_judge_is_alive_but_not_ready(
    engine: ScriptedEngine,
    break_it: Callable[[httpx.AsyncClient, SqliteStore], Awaitable[None]],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.judging.readiness.SILENT_S", 0.5)
    store = SqliteStore(tmp_path / "sets.db")
    async with client_of(engine, store) as client:
        await break_it(client, store)
        problem(await client.get("/readyz"), code)
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/info")).status_code == 200
    await store.close()
