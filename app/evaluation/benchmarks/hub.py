"""The paper's five benchmarks on the Hugging Face hub, and how their rows are read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.core.comparison import Comparison, Side, Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.evaluation.benchmarks.labeled_pairs import Benchmark, LabeledPair, digest_of

HubRow = Mapping[str, Any]

_TIE = "tie"
_WINNERS: Mapping[str, str] = {
    "model_a": "A",
    "model_b": "B",
    "tie": _TIE,
    "tie (bothbad)": _TIE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class HubBenchmark:
    """A benchmark on the hub.

    Args:
        splits: Splits that are read, in this order.
        read_row: Reader of one row: None for a tie. It raises InvalidComparisonError with the
            reason why a row is left out.
    """

    repository: str
    splits: tuple[str, ...]
    read_row: Callable[[HubRow], LabeledPair | None]


def hub_benchmark(name: str, source: str | None) -> Benchmark:
    """Reads all rows of a benchmark from the hub, or from a folder with a local copy.

    An id that repeats gets a number as a suffix. People may vote on the same pair twice, and a text
    may occur twice; each is its own row.

    Raises:
        InvalidRequestError: The benchmark cannot be loaded, a row lacks a column, or no row is a
            labeled pair.
    """
    benchmark = HUB_BENCHMARKS[name]
    pairs, seen, left_out, ties = list[LabeledPair](), Counter[str](), Counter[str](), 0
    for row in _loaded_rows(name, benchmark, source):
        try:
            pair = benchmark.read_row(row)
        except InvalidComparisonError as exc:
            left_out[exc.detail] += 1
            continue
        except (KeyError, TypeError) as exc:
            raise InvalidRequestError(
                f"{name}: a row does not have the columns of {benchmark.repository}: {exc!r}"
            ) from None
        if pair is None:
            ties += 1
            continue
        seen[pair.id] += 1
        if seen[pair.id] > 1:
            pair = replace(pair, id=f"{pair.id}#{seen[pair.id]}")
        pairs.append(pair)
    if not pairs:
        rest = ", ".join(f"{n} with {reason}" for reason, n in left_out.items()) or "no other row"
        raise InvalidRequestError(f"{name} has no labeled pair: {ties} ties, {rest}")
    return Benchmark(name=name, pairs=tuple(pairs), ties=ties, left_out=dict(left_out))


def _loaded_rows(name: str, benchmark: HubBenchmark, source: str | None) -> Iterator[HubRow]:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise InvalidRequestError(
            f"{name} is read with `datasets`: pip install scope-judge[evaluation]"
        ) from None
    # `load_dataset` would look for a missing folder on the hub.
    if source is not None and not Path(source).is_dir():
        raise InvalidRequestError(f"{name}: {source} cannot be read: it is not a folder")
    for split in benchmark.splits:
        try:
            yield from load_dataset(source or benchmark.repository, split=split)
        except (DatasetsError, OSError, ValueError) as exc:
            advice = (
                "the folder must hold the data set as the hub has it"
                if source
                else (
                    "check the network; if the data set is gated, accept its terms on the hub and "
                    f"set HF_TOKEN; or give a local copy as {name}=FOLDER"
                )
            )
            raise InvalidRequestError(
                f"{name}: split {split} of {source or benchmark.repository} cannot be loaded "
                f"({exc}): {advice}"
            ) from None


def _mt_bench(row: HubRow) -> LabeledPair | None:
    """One vote of one person on one turn; each vote is a pair."""
    if row["turn"] not in (1, 2):
        raise InvalidComparisonError("an unknown turn")
    columns = ("question_id", "model_a", "model_b", "judge", "turn")
    pair_id = "/".join(str(row[column]) for column in columns)
    return _conversations(row, pair_id, row["turn"])


def _chatbot_arena(row: HubRow) -> LabeledPair | None:
    return _conversations(row, str(row["question_id"]), None)


def _reward_bench(row: HubRow) -> LabeledPair | None:
    # Rows of different subsets share ids.
    pair_id = f"{row['subset']}/{row['id']}"
    return _single_texts(pair_id, row["prompt"], row["chosen"], row["rejected"], "A")


def _judge_bench(row: HubRow) -> LabeledPair | None:
    label = {"A>B": "A", "B>A": "B", "A=B": _TIE}.get(row["label"])
    responses = row["response_A"], row["response_B"]
    return _single_texts(str(row["pair_id"]), row["question"], *responses, label)


def _pku_safe_rlhf(row: HubRow) -> LabeledPair | None:
    """The label is the safer response.

    The paper does not say which label it uses, but calls the data set a safety benchmark. The rows
    also have `better_response_id`, the more helpful response.
    """
    texts = row["prompt"], row["response_0"], row["response_1"]
    label = {0: "A", 1: "B"}.get(row["safer_response_id"])
    return _single_texts(digest_of(*texts), *texts, label)


def _single_texts(
    pair_id: str, question: Any, a: Any, b: Any, label: str | None
) -> LabeledPair | None:
    """One question and one text each; a missing text becomes blank, and the row is left out."""
    turns = (Turn("user", question or ""),)
    return _pair(pair_id, digest_of(turns), turns, (a or "",), (b or "",), label)


def _conversations(row: HubRow, pair_id: str, exchanges: int | None) -> LabeledPair | None:
    """The first exchanges of two conversations in which the user says the same; None takes all."""
    questions_a, replies_a = _texts_by_role(row["conversation_a"])
    questions_b, replies_b = _texts_by_role(row["conversation_b"])
    if questions_a[:exchanges] != questions_b[:exchanges]:
        raise InvalidComparisonError("different questions")
    if min(len(questions_a), len(replies_a), len(replies_b)) < (exchanges or len(questions_a)):
        raise InvalidComparisonError("a question without a reply")
    return _pair(
        pair_id,
        str(row["question_id"]),
        tuple(Turn("user", text) for text in questions_a[:exchanges]),
        replies_a[:exchanges],
        replies_b[:exchanges],
        _WINNERS.get(row["winner"]),
    )


def _pair(
    pair_id: str,
    group: str,
    question: tuple[Turn, ...],
    response_a: tuple[str, ...],
    response_b: tuple[str, ...],
    label: str | None,
) -> LabeledPair | None:
    if label == _TIE:
        return None
    comparison = Comparison(question, response_a, response_b)
    if label is None:
        raise InvalidComparisonError("an unknown label")
    side: Side = "A" if label == "A" else "B"
    return LabeledPair(id=pair_id, group=group, comparison=comparison, label=side)


def _texts_by_role(conversation: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of the user, and those of the assistant."""
    user, assistant = (
        tuple(turn["content"] or "" for turn in conversation or () if turn["role"] == role)
        for role in ("user", "assistant")
    )
    return user, assistant


# Names, splits and columns as on the hub in 2026.
HUB_BENCHMARKS: Mapping[str, HubBenchmark] = MappingProxyType(
    {
        "mt-bench": HubBenchmark(
            repository="lmsys/mt_bench_human_judgments", splits=("human",), read_row=_mt_bench
        ),
        "reward-bench": HubBenchmark(
            repository="allenai/reward-bench", splits=("filtered",), read_row=_reward_bench
        ),
        "chatbot-arena": HubBenchmark(
            repository="lmsys/chatbot_arena_conversations",
            splits=("train",),
            read_row=_chatbot_arena,
        ),
        "judge-bench": HubBenchmark(
            repository="ScalerLab/JudgeBench", splits=("gpt", "claude"), read_row=_judge_bench
        ),
        "pku-safe-rlhf": HubBenchmark(
            repository="PKU-Alignment/PKU-SafeRLHF", splits=("test",), read_row=_pku_safe_rlhf
        ),
    }
)
