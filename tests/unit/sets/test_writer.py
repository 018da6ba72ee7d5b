"""Writing changes: conflicts with other writers, and the log."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.core.errors import (
    StoreUnavailableError,
)
from app.stores.memory import MemoryStore
from tests.serving import services_of
from tests.unit.sets.trails import batch, trail


@pytest.mark.parametrize("action", ["add", "rollback", "delete"])
async def test_a_change_that_always_conflicts_is_unavailable(action: str) -> None:
    class Contended(MemoryStore):
        """Every write after the first two conflicts with another writer."""

        writes = 0

        async def write(self, *args: Any, **kwargs: Any) -> bool:
            self.writes += 1
            return self.writes <= 2 and await super().write(*args, **kwargs)

    async with services_of(store=Contended()) as services:
        await services.calibrator.add("default", batch(1))
        await services.calibrator.add("default", batch(2))
        calibrator = services.calibrator
        changes: dict[str, Callable[[], Awaitable[Any]]] = {
            "add": lambda: calibrator.add("default", batch(3)),
            "rollback": lambda: calibrator.rollback("default", 1),
            "delete": lambda: calibrator.delete("default"),
        }
        with pytest.raises(StoreUnavailableError, match="nothing was changed"):
            await changes[action]()


async def test_every_change_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "app.calibrations")
    async with services_of() as services:
        await services.calibrator.add("default", batch(1, 2), by="line\nbreak")
        await services.calibrator.rollback("default", 1)
        await services.calibrator.delete("default", by="admin")
    assert [record.getMessage() for record in caplog.records] == [
        "calibration default: version 1 (calibrate by 'line\\nbreak'), added 2, updated 0, ties 0, "
        "removed 0, failed 0, n 2, rolled back to None",
        "calibration default: version 2 (delete by 'admin'), added 0, updated 0, ties 0, "
        "removed 2, failed 0, n 0, rolled back to None",
    ]


async def test_a_change_with_an_unknown_outcome_is_logged_and_not_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemoryStore):
        """Writes, but loses the answer."""

        async def write(self, *args: Any, **kwargs: Any) -> bool:
            await super().write(*args, **kwargs)
            raise StoreUnavailableError("gone")

    async with services_of(store=Broken()) as services:
        with pytest.raises(StoreUnavailableError):
            await services.calibrator.add("default", batch(1), by="ci")
        assert "version 1 (calibrate by 'ci') may have been written or not" in caplog.text
        again = await services.calibrator.add("default", batch(1))
        assert (again.added, again.updated, again.calibration.version) == (0, 1, 1)
        assert [change.version for change in await trail(services)] == [1]
