"""results.json: the results of a leaderboard as text, and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from app.core.errors import InvalidRequestError
from app.ratings.results import FORMAT, Board, Results


def results_text(results: Results) -> str:
    """The text of results.json: the fields of Results, and those of its board beside them.

    Raises:
        ValueError: A number is not finite.
    """
    whole = asdict(results)
    # The first board's fields are at the top level, so that `.views.soft` is the same in all files.
    board = whole.pop("board")
    return json.dumps({**board, **whole}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def results_of(text: str, name: str) -> Results:
    """The results in the text of a results.json.

    Args:
        text: The content.
        name: The file's name, for messages.

    Raises:
        InvalidRequestError: The text is no results.json of this version of the format.
    """
    try:
        found = json.loads(text)
        if found.get("format") != FORMAT:
            raise InvalidRequestError(
                f"{name} has the format {found.get('format')!r}, this version reads {FORMAT}: run "
                "`scope-judge leaderboard` on its rows again"
            )
        names = {each.name for each in fields(Board)}
        board = {key: value for key, value in found.items() if key in names}
        rest = {key: value for key, value in found.items() if key not in names}
        made = _made(Results, {**rest, "board": board})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidRequestError(f"{name} is no results.json of a leaderboard") from None
    assert isinstance(made, Results)
    return made


def _made(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that a field has."""
    if get_origin(kind) in (Union, UnionType):
        return None if value is None else _made(_first_of(kind), value)
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(**{key: _made(types[key], each) for key, each in _mapping(value).items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        return tuple(_made(get_args(kind)[0], each) for each in value)
    if get_origin(kind) is dict:
        return {key: _made(get_args(kind)[1], each) for key, each in _mapping(value).items()}
    return value


def _first_of(kind: Any) -> Any:
    return next(each for each in get_args(kind) if each is not NoneType)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value
