"""Outcomes and failures of a comparison; the environments of the frameworks read this file, too.

It imports nothing, because those environments have neither the service nor pytest.
"""

from typing import Any, NamedTuple

QUESTION = "Which?"


class Found(NamedTuple):
    """The reward of a response: a number, or the reason why there is none."""

    number: float | None
    reason: str | None


class Scene(NamedTuple):
    """A response, its opponent, options of the adapter, and the reward of the response."""

    response: str
    opponent: str
    options: dict[str, Any]
    expected: Found


NONE = Found(None, "abstained")
# sigmoid(2) is the preference of the scripted judge at a gap of 2.
SOFT = 0.7615941559557649
# The scripted judge finds the higher quality better. In the set "hard" it is often wrong.
SCENES: dict[str, Scene] = {
    "better": Scene("quality=3", "quality=0", {}, Found(1.0, None)),
    "worse": Scene("quality=0", "quality=3", {}, Found(-1.0, None)),
    "better, soft": Scene("quality=2", "quality=0", {"reward": "soft"}, Found(SOFT, None)),
    "uncertain": Scene("quality=0.1", "quality=0", {"calibration": "hard", "alpha": 0.2}, NONE),
    "uncertain, soft": Scene(
        "quality=0.1", "quality=0", {"calibration": "hard", "alpha": 0.2, "reward": "soft"}, NONE
    ),
    "infeasible": Scene("quality=3", "quality=0", {"alpha": 0.001}, Found(None, "infeasible")),
    "no preference": Scene("quality=1", "quality=1.0", {}, NONE),
    "no preference, always answered": Scene("quality=1", "quality=1.0", {"alpha": None}, NONE),
    "always answered": Scene("quality=0.1", "quality=0", {"alpha": None}, Found(1.0, None)),
    "pac": Scene("quality=3.9", "quality=0", {"guarantee": "pac", "alpha": 0.2}, Found(1.0, None)),
    "equal texts": Scene("quality=1", "quality=1", {}, Found(None, "tied")),
    "empty": Scene("", "quality=1", {}, Found(-1.0, None)),
    "empty without a reward": Scene("", "quality=1", {"empty": "null"}, Found(None, "empty")),
    "thought": Scene("<think>quality=9</think>quality=0", "quality=1", {}, Found(-1.0, None)),
    "error of the item": Scene("ENDLESS", "quality=1", {}, Found(None, "failed")),
}
