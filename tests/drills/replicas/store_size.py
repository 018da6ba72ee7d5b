"""The cost of a calibration set in Redis by its size: the table of docs/guides/scale.md.

python -m tests.drills.replicas.store_size
"""

import asyncio
import hashlib
import random
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from app.core.calibration import Calibration
from app.service.calibration.trail import Edit
from app.service.calibration.writer import prepare
from app.stores.redis import RedisStore
from app.stores.redis_keys import SetKeys
from tests.labelled_examples import labelled_example
from tests.redis_server import RedisServer
from tests.serving import calibrations_of

SIZES = (1_000, 10_000, 100_000)


def calibration_of(n: int) -> Calibration:
    """A set of n examples, with scores as wide as real ones."""
    rng = random.Random(n)
    examples = {
        hashlib.sha256(str(i).encode()).hexdigest(): labelled_example(
            rng.gauss(0, 3), rng.gauss(0, 3), rng.random(), "A" if rng.random() < 0.5 else "B"
        )
        for i in range(n)
    }
    return Calibration(
        name=f"set-{n}",
        write_id=uuid.uuid4().hex,
        version=1,
        judge="demo",
        fingerprint="f" * 64,
        label_noise=0.0,
        examples=examples,
    )


async def row_of(n: int, server: RedisServer) -> str:
    """Writes a set, reads it as another replica would, and gets its size from Redis."""
    store, calibration = RedisStore(server.url), calibration_of(n)
    edit = Edit(action="calibrate", by="service", at=datetime.now(UTC), added=n)
    state, _, _, change = prepare(None, calibration, edit)
    begun = time.perf_counter()
    await store.write(calibration.name, state, change=change, expected=None)
    written_s = time.perf_counter() - begun
    begun = time.perf_counter()
    await calibrations_of(store).get(calibration.name)
    read_s = time.perf_counter() - begun
    keys = SetKeys.of(calibration.name)
    size = sum(int(str(server.command("MEMORY", "USAGE", key, "SAMPLES", "0"))) for key in keys)
    await store.close()
    return f"| {n:,} | {size / 1e6:.1f} MB | {written_s:.2f} s | {read_s:.2f} s |"


async def main() -> None:
    """Prints a row for each size, on a Redis that logs every write to disk."""
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        for n in SIZES:
            print(await row_of(n, server), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
