"""The bodies of requests: pairs, labeled examples, and the criterion of a verdict."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, TypedDict, cast, get_type_hints

from scope_judge.records import Guarantee, Identifier, Label

Message = Mapping[str, Any]
Question = str | Sequence[Message]
Response = str | Sequence[str]
Pair = tuple[Question, Response, Response] | Mapping[str, Any]
_TEXTS = ["question", "response_a", "response_b"]
Example = tuple[Question, Response, Response, Label] | Mapping[str, Any]
# As trainers hand a response over: a text, or one message of the assistant.
Completion = str | Message | Sequence[Message]
# With a third value or the field `reference`, each response is compared with that reference.
Group = (
    tuple[Question, Sequence[Completion]]
    | tuple[Question, Sequence[Completion], Completion]
    | Mapping[str, Any]
)


class Criterion(TypedDict, total=False):
    """The criterion of a verdict; a field that is left out is the service's default."""

    alpha: float | None
    guarantee: Guarantee | None
    delta: float | None
    calibration: str | None


class ReferenceRule(Criterion, total=False):
    """How comparisons with a reference become rewards."""

    reward: Literal["hard", "soft"]
    empty: Literal["loses", "null"]
    thoughts: Literal["remove", "keep"]
    overlong: Literal["loses", "null"]
    rendered: bool
    comparisons: bool


class GroupRule(ReferenceRule, total=False):
    """How comparisons of a group become rewards."""

    opponents: int | Literal["all"]
    min_accepted: float


class Item(NamedTuple):
    """One item of a batch.

    Args:
        content: The item as JSON.
        id: The id of the item; None if it has none.
        cost: Number of comparisons.
        responses: Number of responses of a group; 0 for another item.
    """

    content: bytes
    id: Identifier | None = None
    cost: int = 1
    responses: int = 0


def to_json(value: Any) -> bytes:
    """JSON as ASCII; NaN is allowed, because the service reports invalid values better."""
    return _ENCODER.encode(value).encode()


def _list_of(value: Any) -> Any:
    """A list for a sequence that is none, such as a column of a data set."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"{type(value).__name__} is neither a text nor a list of texts or messages")


def checked(options: Mapping[str, Any], known: type[Any]) -> dict[str, Any]:
    """The options; raises TypeError for a name that is none, as Python does for an argument."""
    names = _names(cast(Hashable, known))
    for name in options:
        if name not in names:
            raise TypeError(f"{name!r} is not one of the options {', '.join(sorted(names))}")
    return dict(options)


@cache
def _names(known: Hashable) -> frozenset[str]:
    return frozenset(get_type_hints(known))


def comparison(
    question: Question, a: Response, b: Response, identifier: Identifier | None = None
) -> dict[str, Any]:
    """The fields of a comparison."""
    fields: dict[str, Any] = {"question": question, "response_a": a, "response_b": b}
    return fields if identifier is None else {**fields, "id": identifier}


def rows_of(given: Any, *more: str, labeled: bool = False) -> Any:
    """The rows of a pandas DataFrame as mappings, without empty cells; other inputs as they are.

    A number in place of a text is written out, and columns that are neither those of a pair nor
    named in `more` are left out. With `labeled`, a row without a label is None.
    """
    if not (hasattr(given, "to_dict") and hasattr(given, "columns")):
        return given
    needed = [*_TEXTS, "label"] if labeled else _TEXTS
    if absent := [name for name in needed if name not in given.columns]:
        raise TypeError(f"the DataFrame lacks the columns {', '.join(absent)}: rename those of "
                        f"{', '.join(map(str, given.columns))}, as by "
                        f'table.rename(columns={{"COLUMN": "{absent[0]}"}})')  # fmt: skip
    read = [name for name in (*needed, "id", *more) if name in given.columns]
    rows = [
        {name: _cell(name, value) for name, value in row.items() if not _is_missing(value)}
        for row in given[read].to_dict("records")
    ]
    return [row if not labeled or "label" in row else None for row in rows]


def _is_missing(value: Any) -> bool:
    # NaN differs from itself; pandas.NA has no truth value, and neither has an array.
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    # pandas makes floats of whole numbers if one of a column is missing.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    return str(number) if name in _TEXTS else number


def pair_item(pair: Pair, number: int) -> Item:
    """A pair as an item."""
    return _item(pair, number, size=3, what="a pair: (question, a, b)")


def example_item(example: Example, number: int) -> Item:
    """A labeled pair as an item; the fourth value is its label."""
    return _item(example, number, size=4, what="an example: (question, a, b, label)")


def _item(given: Any, number: int, *, size: int, what: str) -> Item:
    # A dict is recognized at once: asking for a Mapping takes a third of the time of the JSON.
    if type(given) is dict or isinstance(given, Mapping):
        if given.get("explain"):
            raise TypeError(
                f"number {number} has `explain`, which is for `judge` only: leave it out"
            )
        fields = given
    elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == size:
        fields = comparison(*given[:3])
        if size == 4:
            fields["label"] = given[3]
    else:
        raise TypeError(
            f"number {number} is not {what}, or a mapping with question, response_a, response_b"
        )
    identifier = fields.get("id")
    try:
        content = to_json(fields)
    except TypeError as exc:
        raise TypeError(f"number {number} is not {what}: {exc}") from None
    return Item(content, identifier if isinstance(identifier, str | int) else None)


def body_of(fields: Mapping[str, Any], name: str, items: Iterable[Item]) -> bytes:
    """A body with a list of items under a name, which are already JSON."""
    head = to_json(dict(fields))[:-1]
    listed = b",".join(item.content for item in items)
    return b'%b%b"%b":[%b]}' % (head, b"," if fields else b"", name.encode(), listed)


# json.dumps would make an encoder for each item, which takes five times as long.
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_list_of)


def given_fields(**fields: Any) -> dict[str, Any]:
    """The fields that are not None: those that are left out are the service's defaults."""
    return {name: value for name, value in fields.items() if value is not None}


def group_item(group: Group, number: int, opponents: int | Literal["all"]) -> Item:
    """A group of responses as an item that costs its largest number of comparisons."""
    try:
        fields = group_fields(group)
        content = to_json(fields)
        responses = fields["responses"]
        # The service says what is wrong with responses that are not a list.
        count = 0 if isinstance(responses, str) else len(responses)
    except (TypeError, ValueError, KeyError) as exc:
        raise TypeError(
            f"number {number} is not a group: (question, [response, ...]), the same with a "
            f"reference, or a mapping with question and responses: {exc}"
        ) from None
    if fields.get("reference") is not None:
        cost = count
    else:
        met = min(opponents, count - 1) if isinstance(opponents, int) else count - 1
        cost = (count * met + 1) // 2
    return Item(content, cost=max(1, cost), responses=count)


def group_fields(group: Group) -> Mapping[str, Any]:
    """The fields of a group."""
    if isinstance(group, Mapping):
        return group
    question, responses, *rest = group
    fields = {"question": question, "responses": responses}
    if not rest:
        return fields
    (reference,) = rest
    if reference is None:
        raise TypeError("the reference is None, and the responses are compared with it")
    return {**fields, "reference": reference}
