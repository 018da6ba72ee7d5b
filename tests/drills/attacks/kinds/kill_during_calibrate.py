"""kill -9 in the middle of POST /calibrate, 20 times a store; `make test` kills 5 times."""

from pathlib import Path

from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene
from tests.integration.processes.kills import kill_during_calibrate
from tests.redis_server import RedisServer

_KILLS = 20


def kill_during_writes(scene: Scene) -> str:
    """Kills a second service 20 times on an empty SQLite file, and 20 times on an empty Redis."""
    folder = scene.folder
    figures = [_killed(folder, "SQLite", f"sqlite:///{folder}/killed.db")]
    redis = RedisServer(_new(folder / "redis"))
    redis.start()
    try:
        figures.append(_killed(folder, "Redis", redis.url))
    finally:
        redis.stop()
    return "; ".join(figures)


def _killed(folder: Path, store: str, url: str) -> str:
    # A folder of its own: `folder` has the log of the scene's own service.
    found = kill_during_calibrate(_new(folder / store), url, kills=_KILLS)
    figure = (
        f"{store}: {_KILLS} kills, {found.interrupted} before the answer, "
        f"{found.committed} after the commit, nothing lost, doubled or half written"
    )
    assert found.interrupted, f"no kill came before the answer: {figure}"
    assert found.committed, f"no kill came after the commit: {figure}"
    return figure


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


ATTACKS = (
    Attack(
        "kill-during-calibrate",
        f"kill -9 at {_KILLS} moments of POST /calibrate, on SQLite and on Redis",
        kill_during_writes,
        watched=False,
    ),
)
