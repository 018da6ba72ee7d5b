"""Copies of a judge on several GPUs: which copy reads the prompts of a question."""

from app.judges.engines.vllm_process import rank_of
from app.judges.engines.vllm_start import BATCHED_TOKENS


def test_prompts_of_a_question_go_to_one_rank_while_none_is_behind() -> None:
    chosen = [rank_of(f"question {i}", [0] * 8) for i in range(400)]
    assert chosen == [rank_of(f"question {i}", [2 * BATCHED_TOKENS] * 8) for i in range(400)]
    # Each of 8 ranks gets 50 of 400 on average.
    assert {chosen.count(rank) > 20 for rank in range(8)} == {True}


def test_a_second_rank_takes_the_questions_of_one_that_is_two_steps_behind() -> None:
    unread = [0, 0]
    first = rank_of("question", unread)
    unread[first] = 2 * BATCHED_TOKENS
    assert rank_of("question", unread) == first
    unread[first] += 1
    assert rank_of("question", unread) == 1 - first


def test_many_questions_load_all_ranks_alike() -> None:
    unread = [0] * 8
    for i in range(2000):
        unread[rank_of(f"question {i}", unread)] += 2000
    assert max(unread) - min(unread) <= 3 * BATCHED_TOKENS
