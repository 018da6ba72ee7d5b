"""Argilla: the records that its SDK imports, the settings of their dataset, and what it exports.

Written and read as release 2 of its SDK does (docs.argilla.io/latest): `Settings.from_json`,
`Dataset.records.from_json`, and `Dataset.records.to_json`, which lists the responses of each
question by user.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.files.reading import FileRow
from app.service.labelling.pairs import BlindPair
from app.service.labelling.tickets import WORDS, ToolAnswer, ticket_of

_WORD, _REASON = "preference", "reason"


def _field(name: str, title: str) -> dict[str, Any]:
    settings = {"type": "text", "use_markdown": False}
    return {"name": name, "title": title, "required": True, "settings": settings}


# One answer completes a record. Markdown would hide signs of a text.
SETTINGS: Mapping[str, Any] = {
    "guidelines": "Which response is better? Say why if a pair cannot be labelled.",
    "allow_extra_metadata": False,
    "distribution": {"strategy": "overlap", "min_submitted": 1},
    "fields": [
        _field("question", "Question"),
        _field("left", "Left"),
        _field("right", "Right"),
    ],
    "questions": [
        {
            "name": _WORD,
            "title": "Which response is better?",
            "description": None,
            "required": True,
            "settings": {
                "type": "label_selection",
                "options": [{"value": word, "text": word} for word in WORDS],
                "visible_options": len(WORDS),
            },
        },
        {
            "name": _REASON,
            "title": "Why can it not be labelled?",
            "description": None,
            "required": False,
            "settings": {"type": "text", "use_markdown": False},
        },
    ],
    "vectors": [],
    "metadata": [],
}


def record_of(pair: BlindPair) -> dict[str, Any]:
    """A record that shows a pair."""
    shown = pair.text
    return {
        "id": ticket_of(pair),
        "fields": {"question": shown.question, "left": shown.left, "right": shown.right},
        "metadata": {},
        "suggestions": {},
        "responses": {},
        "vectors": {},
    }


def is_export(row: FileRow) -> bool:
    """Whether a row is a record of an export."""
    return "fields" in row.fields and "responses" in row.fields


def answers_of(row: FileRow) -> Iterator[ToolAnswer]:
    """Yields the answers to a record; one without an answer if nobody has submitted any."""
    try:
        yield from _answers(row)
    except (AttributeError, KeyError, TypeError):
        yield ToolAnswer(place=row.place, problem="this is not a record of Argilla")


def _answers(row: FileRow) -> list[ToolAnswer]:
    responses = row.fields["responses"] or {}
    words = _by_user(responses.get(_WORD) or [])
    if not words:
        return [_answer(row.place, row)]
    reasons = dict(_by_user(responses.get(_REASON) or []))
    return [
        _answer(
            f"{row.place}, user {user}" if len(words) > 1 else row.place,
            row,
            word=word,
            reason=reasons.get(user),
        )
        for user, word in words
    ]


def _answer(place: str, row: FileRow, *, word: Any = None, reason: Any = None) -> ToolAnswer:
    fields = row.fields["fields"]
    return ToolAnswer(
        place=place,
        ticket=row.fields.get("id"),
        question=fields.get("question"),
        left=fields.get("left"),
        right=fields.get("right"),
        word=word,
        reason=reason,
    )


def _by_user(responses: list[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Users and their values, without drafts and discarded ones where the file marks them."""
    return [
        (str(response["user_id"]), response["value"])
        for response in responses
        if response.get("status") in (None, "submitted")
    ]
