"""Finds the version of a calibration that a replica judges with, or has in memory."""

import asyncio
import json
from typing import NamedTuple, Self

from tests.benchmarks.processes import HttpServer
from tests.drills.load.client import Answer, Client
from tests.drills.load.material import ALPHA, calibrate_body, scripted_pairs
from tests.patience import PATIENCE_S

# The promised delay; polling alone keeps it.
WITHIN_S = 1.0
_PAUSE_S = 0.005


class Used(NamedTuple):
    """The calibration that a judgment rests on; all fields are 0 if the set is gone."""

    version: int
    n: int


class Replica(Client):
    """A client of one replica for one calibration set."""

    def __init__(self, service: HttpServer, name: str) -> None:
        super().__init__(service.port)
        self.name = name
        self._content = json.dumps(
            {**scripted_pairs()[0].fields, "alpha": ALPHA, "calibration": name}
        ).encode()

    async def __aenter__(self) -> Self:
        return self

    async def post(self, *batches: int) -> Answer:
        """Adds numbered batches."""
        answer = await self.ask("POST", "/calibrate", calibrate_body(self.name, batches))
        assert answer.status == 200, answer
        return answer

    async def judgment(self) -> Answer:
        """Judges one pair with the set."""
        return await self.ask("POST", "/judge", self._content)

    async def used(self) -> Used:
        """The calibration that a judgment rests on now."""
        answer = await self.judgment()
        if answer.code == "calibration_not_found":
            return Used(0, 0)
        assert answer.status == 200, answer
        named = answer.body["calibration"]
        return Used(named["version"], named["n"])

    async def until_used(self, version: int) -> float:
        """Judges until an answer rests on this version; returns the seconds."""
        loop = asyncio.get_running_loop()
        began, held_up_s = loop.time(), 0.0
        while (await self.used()).version != version:
            assert loop.time() - began < PATIENCE_S, f"version {version} did not arrive in time"
            slept = loop.time()
            await asyncio.sleep(_PAUSE_S)
            held_up_s += loop.time() - slept - _PAUSE_S
        # Time in which other work kept this process from running is not the replica's delay.
        return loop.time() - began - held_up_s
