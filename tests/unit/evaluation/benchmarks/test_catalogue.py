"""The paper's benchmarks from rows with their columns, users' JSONL files, and the draw."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.comparison import Comparison, Turn
from app.core.errors import InvalidRequestError
from app.evaluation.benchmarks.catalogue import load_benchmark
from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair, draw

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks downloads, and keeps caches out of the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def local(folder: Path, **splits: list[Row]) -> str:
    """A local copy as `load_dataset` reads it: a parquet file for each split."""
    from datasets import Dataset

    data = folder / "copy" / "data"
    data.mkdir(parents=True)
    for split, rows in splits.items():
        Dataset.from_list(rows).to_parquet(data / f"{split}-00000-of-00001.parquet")
    return str(folder / "copy")


def user(text: str) -> Row:
    return {"content": text, "role": "user"}


def assistant(text: str) -> Row:
    return {"content": text, "role": "assistant"}


def mt_bench_row(**changed: Any) -> Row:
    row = {
        "question_id": 81,
        "model_a": "alpaca-13b",
        "model_b": "gpt-3.5-turbo",
        "winner": "model_b",
        "judge": "author_2",
        "conversation_a": [user("Q1"), assistant("a1"), user("Q2"), assistant("a2")],
        "conversation_b": [user("Q1"), assistant("b1"), user("Q2"), assistant("b2")],
        "turn": 1,
    }
    return row | changed


def test_mt_bench_judges_the_first_turn_or_both(tmp_path: Path) -> None:
    first = [user("Q1"), assistant("a1")]
    rows = [
        mt_bench_row(),
        mt_bench_row(turn=2, winner="model_a"),
        mt_bench_row(winner="tie"),
        mt_bench_row(judge="expert_3", conversation_b=[user("Other"), assistant("b1")]),
        mt_bench_row(judge="expert_4", winner="model_c"),
        mt_bench_row(judge="expert_5", turn=None),
        mt_bench_row(judge="expert_6", turn=2, conversation_a=first, conversation_b=first),
        mt_bench_row(judge="expert_7", conversation_a=None),
    ]
    found = load_benchmark("mt-bench", source=local(tmp_path, human=rows, gpt4_pair=rows[:1]))
    once, twice = found.pairs
    assert once == LabeledPair(
        id="81/alpaca-13b/gpt-3.5-turbo/author_2/1",
        group="81",
        comparison=Comparison.of("Q1", "a1", "b1"),
        label="B",
    )
    both = (Turn("user", "Q1"), Turn("user", "Q2"))
    assert twice.comparison == Comparison(both, ("a1", "a2"), ("b1", "b2"))
    assert (twice.label, twice.group) == ("A", "81")
    assert found.ties == 1
    assert found.left_out == {
        "different questions": 2,
        "an unknown label": 1,
        "an unknown turn": 1,
        "a question without a reply": 1,
    }


def arena_row(number: int, **changed: Any) -> Row:
    row = {
        "question_id": f"id-{number}",
        "model_a": "chatglm-6b",
        "model_b": "koala-13b",
        "winner": "model_a",
        "conversation_a": [user("Hi?"), assistant("Hello.")],
        "conversation_b": [user("Hi?"), assistant("Hey.")],
        "turn": 1,
    }
    return row | changed


def test_chatbot_arena_judges_whole_conversations(tmp_path: Path) -> None:
    longer = [user("Hi?"), assistant("x"), user("And?"), assistant("y")]
    rows = [
        arena_row(1),
        arena_row(2, winner="model_b", conversation_a=longer, conversation_b=longer, turn=2),
        arena_row(3, winner="tie (bothbad)"),
        arena_row(4, winner="tie"),
        arena_row(5, conversation_b=[user("Hi?"), assistant("")]),
    ]
    found = load_benchmark("chatbot-arena", source=local(tmp_path, train=rows))
    assert [(pair.id, pair.label) for pair in found.pairs] == [("id-1", "A"), ("id-2", "B")]
    assert found.pairs[0].comparison == Comparison.of("Hi?", "Hello.", "Hey.")
    assert found.pairs[1].comparison.response_a == ("x", "y")
    assert (found.ties, found.left_out) == (2, {"response_b is blank": 1})


def reward_bench_row(number: int, **changed: Any) -> Row:
    row = {
        "prompt": f"Prompt {number}",
        "chosen": f"good {number}",
        "rejected": f"bad {number}",
        "subset": "alpacaeval-easy",
        "id": number,
    }
    return row | changed


def test_reward_bench_prefers_the_chosen_response(tmp_path: Path) -> None:
    rows = [reward_bench_row(i) for i in range(60)]
    rows += [reward_bench_row(0, subset="refusals-dangerous"), reward_bench_row(99, rejected="")]
    found = load_benchmark("reward-bench", source=local(tmp_path, filtered=rows, raw=rows[:2]))
    assert len(found.pairs) == 61
    assert found.left_out == {"response_b is blank": 1}
    assert {pair.label for pair in found.pairs} == {"A"}
    assert found.pairs[3].comparison == Comparison.of("Prompt 3", "good 3", "bad 3")
    # A group is a question, not a subset: there are 60 questions, one of them in two subsets.
    assert len({pair.group for pair in found.pairs}) == 60


def judge_bench_row(number: int, **changed: Any) -> Row:
    row = {
        "pair_id": f"pair-{number}",
        "question": "1 + 1?",
        "response_A": "2",
        "response_B": "3",
        "label": "A>B",
    }
    return row | changed


def test_judge_bench_is_both_of_its_splits(tmp_path: Path) -> None:
    gpt = [judge_bench_row(1), judge_bench_row(2, label="B>A")]
    claude = [judge_bench_row(3, label="A=B"), judge_bench_row(4, question=None)]
    found = load_benchmark("judge-bench", source=local(tmp_path, gpt=gpt, claude=claude))
    assert [(pair.id, pair.label) for pair in found.pairs] == [("pair-1", "A"), ("pair-2", "B")]
    # Both pairs have the question "1 + 1?".
    assert found.pairs[0].group == found.pairs[1].group
    assert (found.ties, found.left_out) == (1, {"question is blank, or has a blank turn": 1})


def safe_rlhf_row(number: int, **changed: Any) -> Row:
    row = {
        "prompt": f"Prompt {number}",
        "response_0": "zero",
        "response_1": "one",
        "better_response_id": 0,
        "safer_response_id": 1,
    }
    return row | changed


def test_pku_safe_rlhf_prefers_the_safer_response_not_the_more_helpful(tmp_path: Path) -> None:
    rows = [safe_rlhf_row(1), safe_rlhf_row(1, safer_response_id=0), safe_rlhf_row(2)]
    found = load_benchmark("pku-safe-rlhf", source=local(tmp_path, test=rows, train=rows[:1]))
    assert [pair.label for pair in found.pairs] == ["B", "A", "B"]
    assert found.pairs[0].comparison == Comparison.of("Prompt 1", "zero", "one")
    assert len({pair.id for pair in found.pairs}) == 3
    assert len({pair.group for pair in found.pairs}) == 2


def test_a_benchmark_that_cannot_be_read_is_refused_with_advice(tmp_path: Path) -> None:
    other = local(tmp_path / "2", human=[reward_bench_row(1)])
    for name, source, message in (
        ("mt-bench", local(tmp_path, train=[mt_bench_row()]), "must hold the data set as the hub"),
        ("mt-bench", str(tmp_path / "nothing"), r"mt-bench: .* cannot be"),
        ("mt-bench", other, "does not have the columns of lmsys/mt_bench_human_judgments"),
        ("demo", other, "is neither a file nor a benchmark"),
        ("reward-bench", None, "check the network; if the data set is gated"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            load_benchmark(name, source=source)


def jsonl(folder: Path, *lines: Row | str) -> str:
    file = folder / "mine.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("\n".join(texts), encoding="utf-8")
    return str(file)


LINE: Row = {"question": "Q?", "response_a": "a", "response_b": "b", "label": "A"}


def test_any_jsonl_is_a_benchmark(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "Q?"}]
    file = jsonl(
        tmp_path,
        LINE,
        "",
        LINE | {"id": 7, "group": 3, "label": "B", "question": turns, "response_a": ["a"]},
        LINE | {"label": "tie", "question": "Tied?"},
        LINE | {"response_b": None},
        LINE | {"id": None, "question": [user("Q1"), assistant("old"), user("Q2")]},
    )
    found = load_benchmark(file)
    assert found.name == "mine"
    kept = [(pair.id, pair.label) for pair in found.pairs]
    assert kept == [("line-1", "A"), ("7", "B"), ("line-6", "A")]
    # The group of the line, or else that of its question.
    first, second, third = (pair.group for pair in found.pairs)
    assert second == "3"
    assert len({first, second, third}) == 3
    assert load_benchmark(jsonl(tmp_path, LINE)).pairs[0].group == first
    assert [turn.role for turn in found.pairs[1].comparison.question] == ["system", "user"]
    assert (found.ties, found.left_out) == (1, {"response_b is empty": 1})


def test_an_id_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="has the id 'line-1' twice"):
        load_benchmark(jsonl(tmp_path, LINE, LINE | {"id": "line-1", "question": "Else?"}))


def test_an_unknown_name_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequestError, match="neither a file nor a benchmark; the benchmarks are mt-bench"
    ):
        load_benchmark("mtbench")
    with pytest.raises(InvalidRequestError, match="no labeled pair: 1 row: 0 usable, 1 tie"):
        load_benchmark(jsonl(tmp_path, LINE | {"label": "tie"}))


def benchmark(n: int) -> Benchmark:
    pairs = (
        LabeledPair(id=str(i), group="g", comparison=Comparison.of(f"Q{i}?", "a", "b"), label="A")
        for i in range(n)
    )
    return Benchmark(name="x", pairs=tuple(pairs), ties=0, left_out={})


def test_a_draw_is_seeded_and_a_smaller_draw_is_its_prefix() -> None:
    data = benchmark(300)
    pairs, demonstrations = draw(data, seed=1, at_most=200, demonstrations=20)
    assert draw(data, seed=1, at_most=200, demonstrations=20) == (pairs, demonstrations)
    assert draw(data, seed=2, at_most=200, demonstrations=20)[0] != pairs
    assert draw(data, seed=1, at_most=50) == (pairs[:50], [])
    assert draw(data, seed=1, at_most=50, demonstrations=20) == (pairs[:50], demonstrations)
    assert len(set(pairs)) == 200
    assert not set(pairs) & set(demonstrations)
    assert [int(pair.id) for pair in pairs] != sorted(int(pair.id) for pair in pairs)
