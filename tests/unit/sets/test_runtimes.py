"""A set remembers what computed its scores, and another runtime is reported."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.judges.engines.scripted import ScriptedEngine
from app.ports import EngineIdentity, LabelLogits, OnStage, Prompt, no_stage
from app.stores.memory import MemoryStore
from tests.serving import client_of, services_of
from tests.unit.sets.trails import batch

pytestmark = pytest.mark.anyio

A100 = "vLLM 0.32.0, CUDA 8.0"
H100S = "vLLM 0.32.0, 4 x CUDA 9.0"


class PlacedEngine(ScriptedEngine):
    """A scripted engine on a runtime, whose scores differ a little from another runtime's."""

    def __init__(self, runtime: str | None, *, shift: float = 0.0) -> None:
        super().__init__()
        self._runtime = runtime
        self._shift = shift

    async def start(self, prompt: Prompt, on_stage: OnStage = no_stage) -> EngineIdentity:
        return replace(await super().start(prompt, on_stage), runtime=self._runtime)

    async def label_logits(self, prompts: Any, times: Any = None) -> Any:
        logits = await super().label_logits(prompts, times)
        scored = [each for each in logits if isinstance(each, LabelLogits)]
        return [LabelLogits(each.a + self._shift, each.b) for each in scored]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings since the last call."""
    caplog.set_level(logging.WARNING, "app.calibrations")

    def messages() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return messages


async def test_a_set_keeps_its_runtimes_through_changes_rollback_and_deletion() -> None:
    store = MemoryStore()
    async with services_of(PlacedEngine(A100), store) as services:
        first = (await services.calibrator.add("default", batch(1, 2))).calibration
        assert first.runtimes == (A100,)
    async with services_of(PlacedEngine(H100S, shift=1e-6), store) as services:
        assert (await services.calibrations.get("default")).runtimes == (A100,)
        second = (await services.calibrator.add("default", batch(3))).calibration
        assert second.runtimes == (H100S, A100)
        assert (await services.calibrations.get("default")).runtimes == (H100S, A100)
        assert (await services.calibrator.rollback("default", 1)).calibration.runtimes == (A100,)
        await services.calibrator.delete("default")
        assert (await services.calibrator.rollback("default", 2)).calibration.runtimes == (
            H100S,
            A100,
        )


async def test_another_runtime_is_reported_once(warned: Callable[[], list[str]]) -> None:
    store = MemoryStore()
    async with services_of(PlacedEngine(A100), store) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrations.current("default")
    assert warned() == []
    async with services_of(PlacedEngine(H100S), store) as services:
        await services.calibrations.current("default")
        await services.calibrations.current("default")
        (warning,) = warned()
        assert f"has scores of {A100}, and this judge runs on {H100S}" in warning
        assert "noise-check" in warning
        # A service with the other runtime changes the set.
        async with services_of(PlacedEngine(A100), store) as others:
            await others.calibrator.add("default", batch(2))
        assert (await services.calibrations.get("default")).n == 2
        assert warned() == []
        await services.calibrator.delete("default")
        # Calibrated here again, there is nothing to report.
        await services.calibrator.add("default", batch(1))
    async with services_of(PlacedEngine(H100S), store) as services:
        await services.calibrations.current("default")
        assert warned() == []


async def test_runtimes_are_shown_exported_and_imported() -> None:
    async with client_of(PlacedEngine(A100)) as client:
        assert (await client.get("/info")).json()["runtime"] == A100
        rows = [
            {"question": "q", "response_a": f"quality={i}", "response_b": "quality=0", "label": "A"}
            for i in range(1, 4)
        ]
        made = await client.post("/calibrate", json={"examples": rows})
        assert made.json()["runtimes"] == [A100]
        page = (await client.get("/calibrations/default/examples")).json()
        assert page["runtimes"] == [A100]
        # Somebody exports the set, and imports it into a service on other GPUs.
        body = {field: page[field] for field in ("judge", "fingerprint", "runtimes", "examples")}
    async with client_of(PlacedEngine(H100S)) as client:
        answer = await client.post("/calibrations/default/examples", json=body)
        assert answer.status_code == 200, answer.text
        assert (await client.get("/calibrations/default")).json()["runtimes"] == [A100]
