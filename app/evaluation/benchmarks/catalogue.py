"""Labelled pairs: the paper's benchmarks by their names on the Hugging Face hub, and any JSONL."""

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from app.core.comparison import Comparison, Side, Turn
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.demo.pairs import demo_sets
from app.evaluation.benchmarks.labelled_pairs import Benchmark, LabelledPair

_DEMO = "demo"
_TIE = "tie"
_WINNERS: Mapping[str, Side | str] = {
    "model_a": "A",
    "model_b": "B",
    "tie": _TIE,
    "tie (bothbad)": _TIE,
}

Row = Mapping[str, Any]


class _HubSource(NamedTuple):
    """Where a benchmark is on the hub, and what its rows say."""

    repository: str
    splits: tuple[str, ...]
    pair_of: Callable[[Row], "_Labelled | _LeftOut"]


class _Labelled(NamedTuple):
    """A row before it is checked: its label may be "tie" or something else."""

    id: str
    group: str
    question: tuple[Turn, ...]
    response_a: tuple[str, ...]
    response_b: tuple[str, ...]
    label: str | None


class _LeftOut(NamedTuple):
    """A row that is no comparison."""

    reason: str


def benchmark_names() -> tuple[str, ...]:
    """What `load_benchmark` takes beside files."""
    return (*_ON_THE_HUB, _DEMO)


def load_benchmark(name_or_path: str, *, source: str | None = None) -> Benchmark:
    """Loads a benchmark by its name, or labelled pairs from a JSONL file.

    Args:
        name_or_path: One of `benchmark_names`, or the path of a JSONL file, gzipped or not, of
            objects with question (a text, or turns with role and content), response_a and
            response_b (texts, or lists of them), label (A, B or tie) and, if they like, id and
            group.
        source: A local copy of a benchmark, in a folder as `datasets.load_dataset` reads it; or,
            under any other name, the JSONL file that is to be called so.

    Raises:
        InvalidRequestError: There is no such benchmark or file, it cannot be loaded, or it has no
            pair.
    """
    hub = _ON_THE_HUB.get(name_or_path)
    if hub is not None:
        return _collected(name_or_path, _numbered(_hub_pairs(name_or_path, hub, source)))
    if name_or_path == _DEMO and source is None:
        return _demo()
    path = Path(source or name_or_path)
    if not path.is_file():
        raise InvalidRequestError(
            f"{path} is no file, and no benchmark: there is {', '.join(benchmark_names())}"
        )
    return _collected(name_or_path if source else data_name(path), _file_rows(path))


def data_name(file: Path) -> str:
    """What a data set that is a file is called."""
    return file.name.removesuffix(".gz").removesuffix(".jsonl")


def _numbered(rows: Iterable["_Labelled | _LeftOut"]) -> Iterator["_Labelled | _LeftOut"]:
    """Somebody may have voted on a pair twice, and a text may stand twice: both are rows."""
    seen = Counter[str]()
    for row in rows:
        if isinstance(row, _LeftOut):
            yield row
            continue
        seen[row.id] += 1
        yield row if seen[row.id] == 1 else row._replace(id=f"{row.id}#{seen[row.id]}")


def _collected(name: str, rows: Iterable["_Labelled | _LeftOut"]) -> Benchmark:
    found: dict[str, LabelledPair] = {}
    ties, left_out = 0, Counter[str]()
    for row in rows:
        if isinstance(row, _Labelled) and row.label == _TIE:
            ties += 1
            continue
        pair = _checked(row) if isinstance(row, _Labelled) else row
        if isinstance(pair, _LeftOut):
            left_out[pair.reason] += 1
            continue
        if pair.id in found:
            raise InvalidRequestError(f"{name} has the id {pair.id!r} twice: ids must differ")
        found[pair.id] = pair
    if not found:
        rest = ", ".join(f"{n} with {reason}" for reason, n in left_out.items()) or "no row"
        raise InvalidRequestError(f"{name} has no labelled pair: {ties} ties, {rest}")
    return Benchmark(name, tuple(found.values()), ties, dict(left_out))


def _checked(row: _Labelled) -> LabelledPair | _LeftOut:
    try:
        comparison = Comparison(row.question, row.response_a, row.response_b)
    except InvalidComparisonError as exc:
        return _LeftOut(exc.detail)
    if row.label == "A":
        return LabelledPair(row.id, row.group, comparison, "A")
    if row.label == "B":
        return LabelledPair(row.id, row.group, comparison, "B")
    return _LeftOut("a label that is not known")


def _demo() -> Benchmark:
    """Pairs that the bundled judge has neither learnt from nor was calibrated with."""
    sets = demo_sets()
    pairs = tuple(
        LabelledPair(
            f"demo-{i}",
            _digest(pair.question),
            Comparison.of(pair.question, pair.response_a, pair.response_b),
            pair.label,
        )
        for i, pair in enumerate((*sets.trial, *sets.fresh))
    )
    return Benchmark(_DEMO, pairs, 0, {})


def _hub_pairs(name: str, hub: _HubSource, source: str | None) -> Iterator[_Labelled | _LeftOut]:
    for row in _hub_rows(name, hub, source):
        try:
            yield hub.pair_of(row)
        except (KeyError, TypeError) as exc:
            raise InvalidRequestError(f"{name}: no row of {hub.repository}: {exc!r}") from None


def _hub_rows(name: str, hub: _HubSource, source: str | None) -> Iterator[Row]:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise InvalidRequestError(
            f"{name} is read with `datasets`: pip install scope-judge[evaluation]"
        ) from None
    # Without this, a folder that is not there would be looked for on the hub.
    if source is not None and not Path(source).is_dir():
        raise InvalidRequestError(f"{name}: {source} cannot be read: it is no folder")
    for split in hub.splits:
        try:
            yield from load_dataset(source or hub.repository, split=split)
        except (DatasetsError, OSError, ValueError) as exc:
            advice = (
                "the folder must hold the data set as the hub has it"
                if source
                else (
                    "check the network; where it is gated, accept its terms on the hub and set "
                    f"HF_TOKEN; or give a local copy as {name}=FOLDER"
                )
            )
            raise InvalidRequestError(
                f"{name}: split {split} of {source or hub.repository} cannot be loaded ({exc}): "
                f"{advice}"
            ) from None


def _user(text: str) -> tuple[Turn, ...]:
    return (Turn("user", text),)


def _of_texts(pair_id: str, question: Any, a: Any, b: Any, label: str | None) -> _Labelled:
    """One question and one text each; what is missing becomes blank, and is left out as that."""
    turns = _user(question or "")
    return _Labelled(pair_id, _digest(turns), turns, (a or "",), (b or "",), label)


def _of_conversations(
    row: Row, pair_id: str, group: str, exchanges: int | None
) -> _Labelled | _LeftOut:
    """The first exchanges of two conversations whose user says the same in both."""
    (asked, said), (asked_b, said_b) = (
        tuple(
            tuple(turn["content"] or "" for turn in row[name] or () if turn["role"] == role)
            for role in ("user", "assistant")
        )
        for name in ("conversation_a", "conversation_b")
    )
    if asked[:exchanges] != asked_b[:exchanges]:
        return _LeftOut("different questions")
    if min(len(asked), len(said), len(said_b)) < (exchanges or len(asked)):
        return _LeftOut("a question without a reply")
    return _Labelled(
        pair_id,
        group,
        tuple(Turn("user", text) for text in asked[:exchanges]),
        said[:exchanges],
        said_b[:exchanges],
        _WINNERS.get(row["winner"]),
    )


def _mt_bench(row: Row) -> _Labelled | _LeftOut:
    """Several people vote on a pair, on each turn: all of them are pairs."""
    if row["turn"] not in (1, 2):
        return _LeftOut("a turn that is not known")
    names = ("question_id", "model_a", "model_b", "judge", "turn")
    pair_id = "/".join(str(row[name]) for name in names)
    return _of_conversations(row, pair_id, str(row["question_id"]), row["turn"])


def _chatbot_arena(row: Row) -> _Labelled | _LeftOut:
    return _of_conversations(row, str(row["question_id"]), str(row["question_id"]), None)


def _reward_bench(row: Row) -> _Labelled:
    # Ids of different subsets coincide.
    pair_id = f"{row['subset']}/{row['id']}"
    return _of_texts(pair_id, row["prompt"], row["chosen"], row["rejected"], "A")


def _judge_bench(row: Row) -> _Labelled:
    label = {"A>B": "A", "B>A": "B", "A=B": _TIE}.get(row["label"])
    responses = row["response_A"], row["response_B"]
    return _of_texts(str(row["pair_id"]), row["question"], *responses, label)


def _pku_safe_rlhf(row: Row) -> _Labelled:
    """The safer response: the paper does not say which label, but calls the set a safety one.

    The more helpful response, `better_response_id`, is another label of the same rows.
    """
    texts = row["prompt"], row["response_0"], row["response_1"]
    label = {0: "A", 1: "B"}.get(row["safer_response_id"])
    return _of_texts(_digest(*texts), *texts, label)


def _digest(*texts: Any) -> str:
    """A short name for what has none."""
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:16]


# Names, splits and columns as on the hub in 2026.
_ON_THE_HUB: Mapping[str, _HubSource] = MappingProxyType(
    {
        "mt-bench": _HubSource("lmsys/mt_bench_human_judgments", ("human",), _mt_bench),
        "reward-bench": _HubSource("allenai/reward-bench", ("filtered",), _reward_bench),
        "chatbot-arena": _HubSource(
            "lmsys/chatbot_arena_conversations", ("train",), _chatbot_arena
        ),
        "judge-bench": _HubSource("ScalerLab/JudgeBench", ("gpt", "claude"), _judge_bench),
        "pku-safe-rlhf": _HubSource("PKU-Alignment/PKU-SafeRLHF", ("test",), _pku_safe_rlhf),
    }
)


def _file_rows(path: Path) -> Iterator[_Labelled | _LeftOut]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, start=1):
                if text.strip():
                    yield _line(text, number, f"{path}, line {number}")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as exc:
        raise InvalidRequestError(f"{path} cannot be read: {exc}") from None


def _line(text: str, number: int, place: str) -> _Labelled | _LeftOut:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise InvalidRequestError(f"{place}: this is no JSON object; each line needs one")
    for name in ("question", "response_a", "response_b", "label"):
        if name not in row:
            raise InvalidRequestError(
                f"{place}: {name} is missing; a line needs question, response_a, response_b, label"
            )
        if row[name] is None:
            return _LeftOut(f"no {name}")
    if row["label"] not in ("A", "B", _TIE):
        raise InvalidRequestError(f'{place}: label must be "A", "B" or "tie"')
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _LeftOut("half of a surrogate pair")
    try:
        turns = _turns(row["question"])
        a, b = (_texts(row[name]) for name in ("response_a", "response_b"))
    except (KeyError, TypeError):
        raise InvalidRequestError(
            f"{place}: question must be a text or a list of turns with role and content, "
            "response_a and response_b texts or lists of texts"
        ) from None
    pair_id, group = (None if row.get(key) is None else str(row[key]) for key in ("id", "group"))
    return _Labelled(
        pair_id or f"line-{number}", group or _digest(turns), turns, a, b, row["label"]
    )


def _turns(value: Any) -> tuple[Turn, ...]:
    if isinstance(value, str):
        return _user(value)
    turns = tuple(Turn(turn["role"], *_texts(turn["content"])) for turn in value)
    if not all(turn.role in ("user", "assistant", "system") for turn in turns):
        raise TypeError
    return turns


def _texts(value: Any) -> tuple[str, ...]:
    """One text or several; null becomes blank, and the row is left out as that."""
    texts = value if isinstance(value, list) else [value]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError
    return tuple(text or "" for text in texts)
