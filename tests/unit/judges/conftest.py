"""A service whose judge votes."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.main import build
from app.settings import Settings
from app.wiring.services import open_services
from tests.unit.kinds.scenes import Quiet


@pytest.fixture
async def votes() -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(engine="scripted", scoring="votes", samples=4, store_url="memory://")
    app = build(settings, lambda: open_services(settings, Quiet(), on_lost=print), keys=None)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client
