"""A real service on a port of its own, with a scripted judge that is calibrated."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from app.engines.scripted import ScriptedEngine
from app.ports import Store
from tests.patience import PATIENCE_S
from tests.serving import application_of
from tests.unit.api.problems import examples
from tests.unit.api.rewards.doors import script


class _ListeningServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def served(
    engine: ScriptedEngine | None = None,
    store: Store | None = None,
    *,
    calibrated: bool = True,
    **given: Any,
) -> Iterator[str]:
    """The URL of a running service.

    Args:
        engine: The judge; by default one that judges by quality, with its calibration sets.
        store: The store.
        calibrated: Whether to make the calibration sets.
        **given: Settings and keys.
    """
    app = application_of(engine or ScriptedEngine(script), store, **given)
    server = _ListeningServer(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.listening.wait(PATIENCE_S)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        if calibrated:
            calibrate(url)
        yield url
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def calibrate(url: str) -> None:
    """Makes the set "default", and "hard", where the judge is wrong on half of the close pairs."""
    hard = examples(60)
    for each in hard[:30:2]:
        each["label"] = "B"
    for name, labelled in (("default", examples(60)), ("hard", hard)):
        body = {"calibration": name, "examples": labelled}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
