"""Damage to the store: rows removed by hand, the file removed, and a set of 300,000."""

import hashlib
import json
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx

from app.core.calibration import Calibration, LabelledExample
from app.service.calibration.codec import digest_of
from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair
from tests.labelled_examples import labelled_example

_ALPHA = 0.05
_JUDGMENTS = 20
_LARGE = 300_000
_SUFFIXES = ("", "-wal", "-shm")


def half_lost(scene: Scene) -> str:
    """Removes examples by hand, restarts the service and judges with the remaining ones."""
    scene.server.stop()
    with closing(sqlite3.connect(scene.store)) as file, file:
        gone = file.execute("DELETE FROM example WHERE value LIKE '%\"B\"%'").rowcount
    scene.server.start()
    outcomes: dict[str, int] = {}
    with scene.client(scene.judge_key) as client:
        for number in range(_JUDGMENTS):
            answer = client.post("/judge", json={**pair(number), "alpha": _ALPHA})
            said = answer.json()
            outcome = said["code"] if answer.status_code != 200 else said["verdict"]
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    counts = ", ".join(f"{count} x {outcome}" for outcome, count in sorted(outcomes.items()))
    figure = f"{gone} of 300 examples removed, then {_JUDGMENTS} judgments: {counts}"
    assert set(outcomes) == {"store_corrupt"}, figure
    return figure


def file_removed(scene: Scene) -> str:
    """Removes the file, posts examples, restores a backup with its log, and posts more."""
    with scene.client(scene.calibrate_key) as client:
        _posted(client, range(1000, 1020))
        for suffix in ("", "-wal"):
            shutil.copy(_beside(scene.store, suffix), scene.folder / f"backup{suffix}")
        for suffix in _SUFFIXES:
            _beside(scene.store, suffix).unlink(missing_ok=True)
        into_nothing = 0
        # The service refuses the first write after the loss, and does not listen a moment later.
        with suppress(httpx.TransportError):
            into_nothing = len(_posted(client, range(2000, 2020)))
    status = scene.server.wait()
    for suffix in ("-wal", ""):
        (scene.folder / f"backup{suffix}").rename(_beside(scene.store, suffix))
    scene.server.start()
    with scene.client(scene.calibrate_key) as client:
        acknowledged = 320 + len(_posted(client, range(3000, 3020)))
    with closing(sqlite3.connect(scene.store)) as file:
        (there,) = file.execute("SELECT count(*) FROM example WHERE name = 'default'").fetchone()
    figure = (
        f"{into_nothing} of 20 writes acknowledged without a file, the service ended with status"
        f" {status}; {there} of {acknowledged} examples there after the restore and a restart"
    )
    assert not into_nothing, figure
    assert status == 1, figure
    assert there == acknowledged == 340, figure
    return figure


def _posted(client: httpx.Client, numbers: range | list[int]) -> list[int]:
    """The acknowledged examples."""
    return [
        number
        for number in numbers
        if client.post("/calibrate", json={"examples": [{**pair(number), "label": "A"}]}).is_success
    ]


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def large_set(scene: Scene) -> str:
    """Puts a set of 300,000 into the store; reads, changes, deletes and restores it."""
    with scene.client(scene.admin_key) as client:
        _write_large(scene.store, client.get("/calibrations/default").json())
        example = {**pair(1), "label": "A"}
        calls: dict[str, Callable[[], httpx.Response]] = {
            "first judgment": lambda: client.post(
                "/judge", json={**pair(1), "calibration": "large"}
            ),
            "calibrate one": lambda: client.post(
                "/calibrate", json={"calibration": "large", "examples": [example]}
            ),
            "GET": lambda: client.get("/calibrations/large"),
            "DELETE": lambda: client.delete("/calibrations/large"),
            "rollback": lambda: client.post("/calibrations/large/rollback", json={"version": 2}),
        }
        steps = []
        for name, call in calls.items():
            with _healthz(scene) as slowest:
                begun = time.monotonic()
                status = call().status_code
                took_s = time.monotonic() - begun
            steps.append(f"{name} {status} in {took_s:.1f} s, /healthz at most {slowest[0]:.2f} s")
    return "; ".join(steps)


def _write_large(path: Path, like: dict[str, str]) -> None:
    """Writes a set as the service writes it, without a trail and thresholds."""
    rng = random.Random(1)
    scores: dict[str, LabelledExample] = {}
    for i in range(_LARGE):
        scores[hashlib.sha256(str(i).encode()).hexdigest()] = labelled_example(
            gap_fwd=rng.gauss(0, 3),
            gap_rev=rng.gauss(0, 3),
            label_mass=rng.uniform(0.9, 1.0),
            label="A" if rng.random() < 0.8 else "B",
        )
    calibration = Calibration(
        name="large",
        write_id="by-hand",
        version=1,
        judge=like["judge"],
        fingerprint=like["fingerprint"],
        label_noise=0.0,
        examples=scores,
    )
    meta = {
        "judge": like["judge"],
        "fingerprint": like["fingerprint"],
        "label_noise": "0.0",
        "n": str(_LARGE),
        "digest": digest_of(calibration),
        "changed_at": "",
    }
    examples = (("large", key, json.dumps(score.fields)) for key, score in scores.items())
    with closing(sqlite3.connect(path, timeout=30)) as file, file:
        file.executemany("INSERT INTO example VALUES (?, ?, ?)", examples)
        fields = [("large", field, value) for field, value in meta.items()]
        file.executemany("INSERT INTO meta VALUES (?, ?, ?)", fields)
        file.execute("INSERT INTO calibration VALUES ('large', 'by-hand', 1)")


@contextmanager
def _healthz(scene: Scene) -> Iterator[list[float]]:
    """The slowest answer of /healthz while the block runs, in seconds."""
    slowest, done = [0.0], threading.Event()

    def ask() -> None:
        with scene.client(timeout_s=30.0) as client:
            while not done.is_set():
                begun = time.monotonic()
                client.get("/healthz").raise_for_status()
                slowest[0] = max(slowest[0], time.monotonic() - begun)
                done.wait(0.005)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield slowest
    finally:
        done.set()
        asking.join()


ATTACKS = (
    Attack(
        "set-half-lost",
        "every example labelled B is removed from the SQLite file by hand",
        half_lost,
        cheap=True,
        watched=False,
    ),
    Attack(
        "store-file-removed",
        "the SQLite file is removed while examples are posted; then a backup is restored",
        file_removed,
        cheap=True,
        watched=False,
    ),
    Attack(
        "large-set",
        "a set of 300,000 examples is read, changed, deleted and rolled back",
        large_set,
        # Its examples need more memory than the small set of a scene.
        watched=False,
        settings={"SCOPE_TIMEOUT_S": "60"},
    ),
)
