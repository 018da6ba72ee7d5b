"""docs/measured/speed.md has the times of docs/measured/reward-times.json."""

import json

from docs.tools import make_reward_times
from docs.tools.make_reward_times import Times


def test_the_page_has_the_measured_times() -> None:
    measured = json.loads(make_reward_times.NUMBERS.read_text(encoding="utf-8"))
    times = {name: Times(**each) for name, each in measured.items()}
    assert set(times) == set(make_reward_times.WAYS)
    page = make_reward_times.PAGE.read_text(encoding="utf-8")
    assert make_reward_times.rows(times) in page
