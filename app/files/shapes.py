"""The columns and the words in which data sets keep comparisons and labels.

A shape says which columns hold what. There are shapes for common data sets, and `custom_shape`
makes one of a map such as `question=prompt,response_a=chosen,response_b=rejected`. A message about
columns that do not fit has a map to start from; nothing is read by it before a person has used it.
"""

import csv
import difflib
import io
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.core.comparison import Label
from app.core.errors import InvalidComparisonError, InvalidRequestError
from app.core.messages import Fields, messages_of, question_of, response_of

REQUIRED = ("question", "response_a", "response_b")
# A row may name its own calibration set.
CALIBRATION = "calibration"
LABEL = "label"
MODELS = ("model_a", "model_b")
# The fields of a battle beside its comparison.
OF_BATTLE = (*MODELS, "id", "question_id", "group", "category", "human", "human_probability")
# A column that no file has, as in --map id=NONE.
NONE = "NONE"
_LABELS = (LABEL, "human")
_OF_BATTLE = ("model_a", "model_b", "human")
# Likeness of names from which on one is suggested, as `difflib` measures it.
_LIKE = 0.75

LABELS: tuple[Label, ...] = ("A", "B", "tie")
# Word in lower case -> label.
KNOWN_WORDS: Mapping[str, Label] = {
    **dict.fromkeys(("a", "model_a", "response_a", "left", "[[a]]"), "A"),
    **dict.fromkeys(("b", "model_b", "response_b", "right", "[[b]]"), "B"),
    **dict.fromkeys(("tie", "draw", "both_bad", "tie (bothbad)", "bothbad"), "tie"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedColumns:
    """The column of each field, and the label of each word in lower case, as a map names them.

    A field that the map leaves out has its own name. Its words are added to the known ones.
    """

    columns: Mapping[str, str]
    words: Mapping[str, Label]


def named_columns(text: str | None, fields: Sequence[str]) -> NamedColumns:
    """Reads a map such as `label=Better?,A=Answer 1,B=Answer 2,tie=equal`.

    A part with a comma is quoted as in CSV. Fields have one column each; a label may have several
    words. Without a text, all columns and words have their usual names.

    Raises:
        InvalidRequestError: The text is not a map of these fields and of labels.
    """
    columns = {name: name for name in fields}
    words: dict[Label, list[str]] = defaultdict(list)
    given = set[str]()
    for part in () if text is None else _parts(text):
        field, equals, value = (piece.strip() for piece in part.partition("="))
        label = next((label for label in LABELS if label == field), None)
        if not equals or not value or (field not in columns and label is None):
            raise InvalidRequestError(
                f"--map: {part.strip()!r} is not FIELD=COLUMN with one of the fields "
                f"{', '.join(columns)}, nor A=WORD, B=WORD or tie=WORD for the words of the label"
            )
        if label is None:
            if field in given:
                raise InvalidRequestError(f"--map: {field} cannot be two columns")
            given.add(field)
            columns[field] = value
        else:
            words[label].append(spelled(value))
    return NamedColumns(columns=columns, words=_words_of(words))


def _parts(text: str) -> list[str]:
    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [""]) or [""]
    except csv.Error as exc:
        raise InvalidRequestError(f"--map: {text!r} cannot be read: {exc}") from None


def _words_of(named: Mapping[Label, Sequence[str]]) -> Mapping[str, Label]:
    own: dict[str, Label] = {}
    for label, its_words in named.items():
        for word in its_words:
            if own.setdefault(word, label) != label:
                raise InvalidRequestError(
                    f"--map: {word!r} cannot mean both {own[word]} and {label}"
                )
    return {**KNOWN_WORDS, **own}


def is_empty(value: Any) -> bool:
    """Whether a label is missing, as JSON, CSV and pandas write it."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and value != value)


def spelled(value: Any) -> str:
    """A label as a word of a map: in lower case, and whole numbers without decimals."""
    # pandas makes floats of integers if one is missing.
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip().lower()


def label_of(value: Any, words: Mapping[str, Label] = KNOWN_WORDS) -> Label:
    """The label that a word means: "A", "B" or "tie".

    Raises:
        InvalidComparisonError: The word is not known. Nothing else is ever taken for a tie.
    """
    label = _label(value, words)
    if label is None:
        raise InvalidComparisonError(
            f"the label {str(value)[:40]!r} is not A, B or tie (or model_a, model_b, both_bad)"
            if words == KNOWN_WORDS
            else f"the label {str(value)[:40]!r} is not a word of the map"
        )
    return label


def _label(value: Any, words: Mapping[str, Label]) -> Label | None:
    return words.get(spelled(value)) if isinstance(value, str | int | float) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonShape:
    """One way to keep comparisons in columns.

    Args:
        columns: Columns that a row must have.
        convert: Row -> fields of the comparison; raises InvalidComparisonError.
        texts: Columns that hold the question and the responses.
        mapped: Columns that a map names, except that of the label, which unlabeled rows lack.
        label: Column of the label; "" for preference data, in which the label is always A.
        words: Word in lower case -> label.
    """

    columns: tuple[str, ...]
    convert: Callable[[Mapping[str, Any]], Fields]
    texts: tuple[str, ...] = ()
    label: str = LABEL
    words: Mapping[str, Label] = field(default_factory=lambda: KNOWN_WORDS)
    mapped: tuple[str, ...] = ()

    def label_in(self, row: Mapping[str, Any]) -> Label | None:
        """The label of a row; None if it is empty.

        Raises:
            InvalidComparisonError: The label is not a known word.
        """
        if not self.label:
            return "A" if all(column in row for column in self.columns) else None
        value = row.get(self.label)
        return None if is_empty(value) else label_of(value, self.words)

    def fields(self, row: Mapping[str, Any]) -> Fields:
        """The fields of the comparison, without the label.

        Raises:
            InvalidComparisonError: The row has no comparison of this shape.
        """
        missing = [column for column in self.columns if row.get(column) is None]
        if missing:
            absent = [column for column in missing if column not in row]
            if absent:
                raise InvalidComparisonError(f"{named(absent)} missing; there is {listed(row)}")
            raise InvalidComparisonError(f"{named(missing)} empty")
        # A spreadsheet has numbers where a response is one.
        return self.convert(
            {
                name: str(value) if type(value) in (int, float) and name in self.texts else value
                for name, value in row.items()
                if value is not None
            }
        )


def known_shape(columns: Collection[str]) -> ComparisonShape | None:
    """The shape whose columns are there, battles first; None if none fits."""
    if set(REQUIRED) <= set(columns):
        return shape_of_label(columns)
    return _PREFERENCE if set(_PREFERENCE.columns) <= set(columns) else None


def shape_of_label(columns: Collection[str]) -> ComparisonShape:
    """The shape of our own columns, or of battles, by the column of the label."""
    return _BATTLES if all(name in columns for name in _OF_BATTLE) else _PAIRS


def custom_shape(text: str) -> ComparisonShape:
    """Makes a shape of a map of a comparison, or of a battle, whose label is `human`."""
    named = named_columns(text, (*REQUIRED, LABEL, CALIBRATION, *OF_BATTLE))
    human = named.columns["human"]
    if human != "human":
        named = replace(named, columns={**named.columns, LABEL: human})
    return shape_of_columns(named)


def shape_of_columns(named: NamedColumns) -> ComparisonShape:
    """Makes a shape of the column of each field of a comparison.

    Raises:
        InvalidRequestError: One column is to be two of the question, the responses and the label.
    """
    columns = named.columns
    fields: dict[str, str] = {}
    for name in (*REQUIRED, LABEL):
        other = fields.setdefault(columns[name], name)
        if other != name:
            raise InvalidRequestError(
                f"--map: {other} and {name} cannot both be the column {columns[name]!r}"
            )
    own = {name: columns[name] for name in (*REQUIRED, CALIBRATION)}

    def convert(row: Mapping[str, Any]) -> Fields:
        return _pair({name: row[column] for name, column in own.items() if column in row})

    needed = tuple(columns[name] for name in REQUIRED)
    return ComparisonShape(
        columns=needed,
        convert=convert,
        texts=needed,
        label=columns[LABEL],
        words=named.words,
        mapped=tuple(c for f, c in columns.items() if c not in (f, NONE) and f not in _LABELS),
    )


def _pair(row: Mapping[str, Any]) -> Fields:
    return {
        "question": question_of(row["question"], "question"),
        "response_a": response_of(row["response_a"], "response_a"),
        "response_b": response_of(row["response_b"], "response_b"),
        **({CALIBRATION: row[CALIBRATION]} if CALIBRATION in row else {}),
    }


def _preference(row: Mapping[str, Any]) -> Fields:
    """TRL's preference data, standard or conversational, and RewardBench."""
    chosen, rejected = row["chosen"], row["rejected"]
    if "prompt" in row:
        question = question_of(row["prompt"], "prompt")
        a, b = response_of(chosen, "chosen"), response_of(rejected, "rejected")
    elif isinstance(chosen, str):
        raise InvalidComparisonError("prompt is missing, and chosen is not a list of messages")
    else:
        question, a, b = _implicit_prompt(
            messages_of(chosen, "chosen"), messages_of(rejected, "rejected")
        )
    return {"question": question, "response_a": a, "response_b": b}


def _implicit_prompt(a: list[Fields], b: list[Fields]) -> tuple[list[Fields], str, str]:
    """The common beginning is the question; each last message is a response."""
    if not a or not b or a[:-1] != b[:-1] or not a[:-1]:
        raise InvalidComparisonError(
            "the two conversations must be equal except for their last message"
        )
    for messages in (a, b):
        if messages[-1]["role"] != "assistant":
            raise InvalidComparisonError("a conversation does not end with the assistant")
    return a[:-1], a[-1]["content"], b[-1]["content"]


def _texts_of(row: Mapping[str, Any]) -> Fields:
    """A battle of `scope-judge battles`; its other columns are of the judgment that it has."""
    return _pair({name: row[name] for name in REQUIRED})


_PAIRS = ComparisonShape(columns=REQUIRED, convert=_pair, texts=REQUIRED)
# The battles that `scope-judge battles` reads and writes. Their `winner` is the judge's verdict.
_BATTLES = replace(_PAIRS, convert=_texts_of, label="human")
_PREFERENCE = ComparisonShape(
    columns=("chosen", "rejected"),
    convert=_preference,
    texts=("prompt", "chosen", "rejected"),
    label="",
)


def listed(row: Iterable[str]) -> str:
    """The names of a row's columns, for messages."""
    names = [str(name) for name in row]
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no column"


def named(columns: Sequence[str]) -> str:
    """The names of columns with a verb, for messages."""
    return f"{', '.join(columns)} {'is' if len(columns) == 1 else 'are'}"


def suggested_map(
    rows: Sequence[Mapping[str, Any]],
    shape: ComparisonShape | None = None,
    *,
    more: Sequence[str] = (),
    labelled: bool = False,
) -> str:
    """A whole map with the nearest column of each field, or COLUMN, quoted for a shell.

    The columns of `shape` stay, `more` are further fields, and `labelled` adds the label.
    """
    names = dict.fromkeys(str(name) for row in rows for name in row)
    known = {} if shape is None else dict(zip(REQUIRED, shape.texts, strict=True))
    if shape is not None:
        known[LABEL] = shape.label
    columns = {wanted: name for wanted, name in known.items() if name in names}
    fields = (*REQUIRED, *more, *((LABEL,) if labelled else ()))
    for wanted in fields:
        others = [name for name in names if name not in columns.values()]
        if wanted not in columns:
            columns[wanted] = _nearest(wanted, others) or "COLUMN"
    parts = [f"{wanted}={columns[wanted]}" for wanted in fields]
    words = KNOWN_WORDS if shape is None else shape.words
    if labelled and (columns[LABEL] == "COLUMN" or unread_words(rows, columns[LABEL], words)):
        parts += words_of_map(words)
    text = io.StringIO()
    # A part with a comma is quoted.
    csv.writer(text, lineterminator="").writerow(parts)
    return shlex.quote(text.getvalue())


def words_of_map(words: Mapping[str, Label]) -> list[str]:
    """The parts of a map for its own words, and for those that it lacks."""
    own = [f"{label}={word}" for word, label in words.items() if word not in KNOWN_WORDS]
    return [*own, *(f"{label}=WORD" for label in LABELS)]


def unread_words(
    rows: Iterable[Mapping[str, Any]], column: str, words: Mapping[str, Label]
) -> list[str]:
    """The labels of a column that no word explains, each once."""
    labels = (row.get(column) for row in rows)
    unread = (str(label) for label in labels if not is_empty(label) and not _label(label, words))
    return list(dict.fromkeys(unread))


def _nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that is most like a field, the first of equal ones; None if none is."""
    likeness = {name: _likeness(wanted, name) for name in names}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] >= _LIKE else None


def _likeness(wanted: str, name: str) -> float:
    text = name.lower().replace(" ", "_").replace("-", "_")
    return difflib.SequenceMatcher(None, text, wanted).ratio()
