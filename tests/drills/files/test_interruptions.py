"""An interrupted run of `judge FILE` gives the same results; `make files` uses 20,000 rows."""

import os
from pathlib import Path

from tests.drills.files.interruptions import INTERRUPTIONS, ROWS_PER_REQUEST, drill

ROWS = 6000


async def test_every_row_is_judged_once_whatever_interrupts_the_run(tmp_path: Path) -> None:
    async with drill(tmp_path, ROWS) as scene:
        scene.undisturbed()
        for name, interruption in INTERRUPTIONS.items():
            if interruption.needs_small_disk and os.geteuid() != 0:
                continue
            # A second kill meets a run that was resumed; the others are met once.
            times = 2 if name == "kill" else 1
            found = scene.disturbed(interruption, times=times)
            assert found.equal, name
            # A service that is away interrupts no command.
            assert found.runs > 1 or name.startswith("service"), f"{name} came too late"
            assert found.left == (), name
            # The requests that were in flight, or not yet synced, when the run was interrupted.
            assert (found.again or 0) <= 2 * times * ROWS_PER_REQUEST, name
