"""A server whose head has 16 bits makes many scores equal, and the service says so."""

import asyncio

import pytest

from app.judges.engines.scripted import ScriptedEngine, by_quality, logits_of_gap
from app.ports import LabelLogits, Prompt
from app.settings import Settings
from app.wiring.services import open_services
from app.wiring.startup import LoggingObserver
from tests.patience import until

pytestmark = pytest.mark.anyio


def rounded(prompt: Prompt) -> LabelLogits:
    """Logits near 25 in bfloat16 are multiples of an eighth."""
    exact = by_quality(prompt)
    return logits_of_gap(round(8 * (exact.a - exact.b)) / 8)


@pytest.mark.parametrize(("script", "warns"), [(rounded, True), (by_quality, False)])
async def test_a_server_with_a_16_bit_head_is_named_with_the_remedy(
    script: object, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(engine="openai", openai_urls="http://x/v1", store_url="memory://")
    engine = ScriptedEngine(script)  # type: ignore[arg-type]
    async with open_services(
        settings, LoggingObserver(), on_lost=lambda _: None, new_engine=lambda _: engine
    ):
        caplog.set_level("INFO", "app")
        await until(lambda: "check of the judge" in caplog.text)
        await asyncio.sleep(0)
        assert ('--hf-overrides \'{"head_dtype": "float32"}\'' in caplog.text) == warns
