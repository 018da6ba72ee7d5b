"""results.json: the results of a leaderboard as text, and back."""

import json
from dataclasses import asdict, fields

from pydantic import TypeAdapter

from app.core.errors import InvalidRequestError
from app.ratings.results import FORMAT, Board, LeaderboardResults

_RESULTS = TypeAdapter(LeaderboardResults)
_OF_BOARD = frozenset(field.name for field in fields(Board))


def results_text(results: LeaderboardResults) -> str:
    """The text of results.json: the fields of Results, and those of its board beside them.

    Raises:
        ValueError: A number is not finite.
    """
    whole = asdict(results)
    # The first board's fields are at the top level, so that `.views.soft` is the same in all files.
    board = whole.pop("board")
    return json.dumps({**board, **whole}, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def results_of(text: str, name: str) -> LeaderboardResults:
    """The results in the text of a results.json.

    Raises:
        InvalidRequestError: The text is not a results.json of this version of the format.
    """
    try:
        content = json.loads(text)
        if content.get("format") != FORMAT:
            raise InvalidRequestError(
                f"{name} has the format {content.get('format')!r}, but this version reads "
                f"{FORMAT}: "
                "run `scope-judge leaderboard` on its rows again"
            )
        board = {key: content.pop(key) for key in _OF_BOARD & content.keys()}
        return _RESULTS.validate_python({**content, "board": board})
    except (ValueError, AttributeError):
        raise InvalidRequestError(f"{name} is not a results.json of a leaderboard") from None
