"""Keeps cached calibration sets up to date between judgments."""

import asyncio
import logging
from contextlib import aclosing

from app.core.errors import StoreUnavailableError
from app.ports import CalibrationStore, ChangeFeed
from app.service.calibration.cache import Calibrations

# Pause before the next subscription to announcements.
_LISTEN_AGAIN_S = 1.0
# Interval at which all cached sets are confirmed.
_CONFIRM_S = 15.0

logger = logging.getLogger("app.calibrations")


async def follow(calibrations: Calibrations, store: CalibrationStore) -> None:
    """Reads new versions of cached sets, also while nobody judges; runs until it is cancelled.

    Args:
        calibrations: The cache.
        store: The store of the cache. If the store announces changes, they are read at once.
    """
    async with asyncio.TaskGroup() as both:
        both.create_task(_confirm(calibrations))
        if isinstance(store, ChangeFeed):
            both.create_task(_listen(calibrations, store))


async def _confirm(calibrations: Calibrations) -> None:
    """Confirms all cached sets periodically.

    This finds changes whose announcement was lost. It also keeps the sets young, so that they
    remain usable for the full time after the store fails.
    """
    while True:
        await asyncio.sleep(_CONFIRM_S)
        await calibrations.refresh()


async def _listen(calibrations: Calibrations, store: ChangeFeed) -> None:
    """Reads each set that the store announces, and subscribes again after a failure."""
    deaf = False
    while True:
        try:
            async with aclosing(store.changed_names()) as changed_names:
                async for name in changed_names:
                    if name is None and deaf:
                        logger.warning("the calibration store announces new versions again")
                    deaf = deaf and name is not None
                    await calibrations.refresh(None if name is None else [name])
        except StoreUnavailableError as exc:
            if not deaf:
                logger.warning(
                    "the calibration store does not announce new versions, so they are read "
                    "periodically: %s",
                    exc.detail,
                )
            deaf = True
        await asyncio.sleep(_LISTEN_AGAIN_S)
        await calibrations.refresh()
