"""The programs that the benchmark of ratings compares find the same intervals."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import ratings_speed


def test_our_intervals_are_as_wide_as_those_of_evalica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One battle a question: evalica draws battles.
    for name, value in {"MODELS": 5, "BATTLES": 2000, "QUESTIONS": 2000}.items():
        monkeypatch.setattr(ratings_speed, name, value)
    files = ratings_speed.battles(tmp_path)
    ours = ratings_speed.by_scope_judge(files["scope-judge"], 200)
    theirs = ratings_speed.by_evalica(files["evalica"], 200)
    # evalica's scores are less their mean in odds, ours in logits: only the sizes compare.
    assert np.mean(ours.widths) == pytest.approx(np.mean(theirs.widths), rel=0.15)
