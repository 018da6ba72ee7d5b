"""Limited keys: one that is limited to a calibration set, and one that makes many sets."""

import json
import os
import re
import time

from app.api.auth.keys import hash_of
from tests.drills.attacks.attack import Attack
from tests.drills.attacks.scene import Scene, pair

_SETS = 150
_KEY_SEEN_WITHIN_S = 5.0
_NAME = re.compile(r'scope_calibration_version\{calibration="([^"]+)"\}')


def read_other_sets(scene: Scene) -> str:
    """Reads /metrics with a key that is limited to one set."""
    key = _add_limited_key(scene)
    with scene.client(key) as client:
        until = time.monotonic() + _KEY_SEEN_WITHIN_S
        while client.get("/info").status_code != 200:
            assert time.monotonic() < until, "the service did not accept the new key in time"
            time.sleep(0.1)
        assert client.get("/calibrations").json() == {"calibrations": []}
        answer = client.get("/metrics")
    found = sorted(set(_NAME.findall(answer.text)) - {"mine"})
    assert not found, f"a key limited to `mine` saw {', '.join(found)} in /metrics"
    return f"/metrics answered {answer.status_code}"


def _add_limited_key(scene: Scene) -> str:
    key = scene.key("limited")
    content = json.loads(scene.keys_file.read_text(encoding="utf-8"))
    content["keys"].append(
        {
            "name": "limited",
            "sha256": hash_of(key.encode()).hex(),
            "roles": ["judge"],
            "calibrations": ["mine"],
            "created": "2026-01-01T00:00:00Z",
        }
    )
    whole = scene.keys_file.with_suffix(".limited")
    whole.write_text(json.dumps(content), encoding="utf-8")
    whole.chmod(0o600)
    os.replace(whole, scene.keys_file)
    return key


def make_many_sets(scene: Scene) -> str:
    """Makes sets whose names sort before `default`, then looks for its gauges."""
    example = {**pair(1), "label": "A"}
    with scene.client(scene.calibrate_key) as client:
        for number in range(_SETS):
            body = {"calibration": f"a-{number:03}", "examples": [example]}
            client.post("/calibrate", json=body).raise_for_status()
    with scene.client(scene.metrics_key) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    shown = set(_NAME.findall(answer.text))
    assert "default" in shown, f"{len(shown)} sets had gauges, and `default` was none of them"
    return f"{len(shown)} sets had gauges, `default` among them"


ATTACKS = (
    Attack(
        "metrics-of-other-sets",
        "a key limited to one calibration set reads /metrics",
        read_other_sets,
        cheap=True,
    ),
    Attack(
        "many-sets",
        f"a calibrate key makes {_SETS} sets, which could hide the gauges of `default`",
        make_many_sets,
    ),
)
