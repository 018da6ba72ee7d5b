"""Copies of a judge on several GPUs: which copy reads the prompts of a question."""

import pytest

from app.core.errors import StartupError
from app.judges.engines import vllm_build
from app.judges.engines.vllm_build import Gpus, check_gpus
from app.judges.engines.vllm_process import Ranks
from app.judges.engines.vllm_start import BATCHED_TOKENS


def test_prompts_of_a_question_go_to_one_rank_while_none_is_behind() -> None:
    ranks = Ranks(8)
    chosen = [ranks.of(f"question {i}") for i in range(400)]
    assert chosen == [ranks.of(f"question {i}") for i in range(400)]
    # Each of 8 ranks gets 50 of 400 on average.
    assert {chosen.count(rank) > 20 for rank in range(8)} == {True}


def test_a_second_rank_takes_the_questions_of_one_that_is_two_steps_behind() -> None:
    ranks = Ranks(2)
    first = ranks.of("question")
    with ranks.reading(first, 2 * BATCHED_TOKENS):
        assert ranks.of("question") == first
        with ranks.reading(first, 1):
            assert ranks.of("question") == 1 - first
    assert ranks.unread == [0, 0]


def test_many_questions_load_all_ranks_alike() -> None:
    ranks = Ranks(8)
    for i in range(2000):
        ranks.unread[ranks.of(f"question {i}")] += 2000
    assert max(ranks.unread) - min(ranks.unread) <= 3 * BATCHED_TOKENS


def test_auto_takes_as_many_ranks_as_the_gpus_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    eight = Gpus(count=8, driver="580.65.06", cuda=13, built_for=13, capability=(8, 0))
    monkeypatch.setattr(vllm_build, "installed_builds", lambda: {"vllm": "0.32.0"})
    monkeypatch.setattr(vllm_build, "visible_gpus", lambda: eight)
    assert [check_gpus(each, ranks="auto") for each in (1, 2, 3)] == [8, 4, 2]
    with pytest.raises(StartupError, match=r"SCOPE_DATA_PARALLEL=8 takes 16 GPUs.*set it to 4"):
        check_gpus(2, ranks=8)
