"""The demo judge is calibrated at its start, and another judge's set is left alone."""

from app.judges.engines.scripted import ScriptedEngine
from app.judging.services import Services
from app.sets.cache import DEFAULT_CALIBRATION
from app.settings import Settings
from app.stores.memory import MemoryStore
from app.wiring.startup import prepare_default
from tests.serving import Notes, services_of


async def started(services: Services, *, escalate_url: str = "") -> list[str]:
    """Starts the services as `make serve` does, and returns the stages of the start."""
    notes = Notes()
    settings = Settings(engine="vllm", model="demo", escalate_url=escalate_url)
    await prepare_default(services, settings, notes)
    return notes.said


async def test_the_demo_judge_has_a_default_set_and_another_judge_takes_none_away() -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        # A cascade has no labels before its plan.
        assert await started(services, escalate_url="http://large") == []
        assert await started(services) == ["Calibrating with 600 labeled pairs"]
        assert await started(services) == []
    async with services_of(ScriptedEngine(judge="next release"), store) as services:
        (note,) = await started(services)
        assert "belongs to another judge" in note
        assert (await services.calibrations.get(DEFAULT_CALIBRATION)).version == 1
        await services.calibrator.delete(DEFAULT_CALIBRATION)
        assert await started(services) == ["The default calibration was deleted, and stays so"]
