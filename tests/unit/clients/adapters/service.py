"""A real service on a port of its own, with a scripted judge that is calibrated."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from app.judges.engines.scripted import ScriptedEngine
from app.ports import Store
from tests.serving import application_of
from tests.unit.api.problems import examples, hard_examples
from tests.unit.api.rewards.reward_routes import script
from tests.unit.cli.listening import listening


@contextmanager
def served(
    engine: ScriptedEngine | None = None,
    store: Store | None = None,
    *,
    calibrated: bool = True,
    **given: Any,
) -> Iterator[str]:
    """The URL of a running service with these settings and keys, which judges by quality."""
    app = application_of(engine or ScriptedEngine(script), store, **given)
    with listening(app) as url:
        if calibrated:
            calibrate(url)
        yield url


def calibrate(url: str) -> None:
    """Makes the set "default", and "hard", where the judge is wrong on half of the close pairs."""
    for name, labeled in (("default", examples(60)), ("hard", hard_examples())):
        body = {"calibration": name, "examples": labeled}
        httpx.post(f"{url}/calibrate", json=body).raise_for_status()
