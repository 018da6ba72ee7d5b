"""Batches, and views of sets and trails, for the tests of calibration sets."""

from pathlib import Path

from app.core.calibration import Calibration
from app.core.comparison import LabeledComparison
from app.judging.services import Services
from app.ports import SetStore
from app.sets.change import Change
from app.sets.codec import decode
from tests.serving import labelled


def batch(*numbers: int, gap: float = 1.0) -> list[LabeledComparison]:
    return [labelled(gap, "A", number=number) for number in numbers]


async def trail(services: Services, name: str = "default") -> list[Change]:
    return await services.calibrator.versions(name, before=None, limit=1000)


async def read(store: SetStore, name: str = "default") -> Calibration:
    blob = await store.read(name)
    assert blob is not None
    return decode(name, blob)


def holds(folder: Path, text: str) -> bool:
    """Whether any file of a folder has this text in it."""
    return any(text.encode() in file.read_bytes() for file in folder.iterdir())
