"""docs/integrations/trl.md has the figures of docs/measured/grpo.json."""

import json
import math

import numpy as np

from docs.tools import make_grpo_figure
from docs.tools.make_grpo_figure import Step


def test_the_page_has_the_measured_figures() -> None:
    runs = json.loads(make_grpo_figure.NUMBERS.read_text(encoding="utf-8"))
    assert make_grpo_figure.rows(runs) in make_grpo_figure.PAGE.read_text(encoding="utf-8")


def test_a_step_without_rewards_is_a_gap() -> None:
    step: Step = {"right": 0.5, "win_rate": None, "coverage": 0.0, "reward": None}
    known: Step = {"right": 0.25, "win_rate": 1.0, "coverage": 0.5, "reward": 0.0}
    runs = {"0.1": [[step, step]], "0.2": [[step, known]]}
    left, right = make_grpo_figure.draw(runs).axes
    (win_rate,) = (line for line in right.lines if line.get_label() == "win rate")
    assert np.array_equal(np.asarray(win_rate.get_ydata()), [math.nan, 1.0], equal_nan=True)
    assert len(left.lines) == len(right.lines)
    assert "| 0.1 | none to none | 0.50 to 0.50 |" in make_grpo_figure.rows(runs)
    assert "| 0.2 | 1.00 to 1.00 | 0.38 to 0.38 |" in make_grpo_figure.rows(runs)
