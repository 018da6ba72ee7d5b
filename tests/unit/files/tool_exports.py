"""Exports of labelling tools after people have labelled the pairs that `audits export` wrote.

The shapes are recorded from documentation and not from running tools: Label Studio's JSON from
labelstud.io/guide/task_format and an export in its issue 6027, JSON_MIN from
labelstud.io/guide/export and the columns that its converter writes, Argilla's from
docs.argilla.io/latest/reference/argilla/records.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The answers of people to one pair: (word, reason).
Answers = Sequence[tuple[str | None, str | None]]

_TIME = "2026-11-23T08:{minute:02d}:08.728353Z"


def rows_of_json(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return found


def annotation(number: int, word: str | None, reason: str | None = None) -> dict[str, Any]:
    """An annotation of Label Studio; without a word, one that was skipped."""
    result: list[dict[str, Any]] = []
    if word is not None:
        result.append(_result("preference", "choices", [word]))
    if reason is not None:
        result.append(_result("reason", "text", [reason], kind="textarea"))
    return {
        "id": 1000 + number,
        "completed_by": 10 + number,
        "result": result,
        "was_cancelled": word is None,
        "ground_truth": False,
        "created_at": _TIME.format(minute=number),
        "updated_at": _TIME.format(minute=number),
        "draft_created_at": None,
        "lead_time": 4.288,
        "prediction": {},
        "result_count": len(result),
        "unique_id": "1b2c3d4e-0000-4000-8000-000000000000",
        "import_id": None,
        "last_action": None,
        "task": 1,
        "project": 83,
        "updated_by": 10,
        "parent_prediction": None,
        "parent_annotation": None,
        "last_created_by": None,
    }


def _result(name: str, field: str, values: list[str], kind: str = "choices") -> dict[str, Any]:
    return {
        "value": {field: values},
        "id": "Dx_aB91ISN",
        "from_name": name,
        "to_name": "question",
        "type": kind,
        "origin": "manual",
    }


def label_studio(
    tasks: Sequence[Mapping[str, Any]], answers: Mapping[int, Answers]
) -> list[dict[str, Any]]:
    """JSON: place of a task -> answers; the others have none."""
    return [
        {
            "id": 500 + place,
            "annotations": [annotation(i, *each) for i, each in enumerate(answers.get(place, ()))],
            "file_upload": "0a1b2c3d-tasks.json",
            "drafts": [],
            "predictions": [],
            "data": task["data"],
            "meta": {},
            "created_at": "2026-11-22T21:52:49.513742Z",
            "updated_at": "2026-11-23T08:16:08.746926Z",
            "inner_id": place + 1,
            "total_annotations": len(answers.get(place, ())),
            "cancelled_annotations": 0,
            "total_predictions": 0,
            "comment_count": 0,
            "project": 83,
            "updated_by": 10,
            "comment_authors": [],
        }
        for place, task in enumerate(tasks)
    ]


def json_min(
    tasks: Sequence[Mapping[str, Any]], answers: Mapping[int, Answers]
) -> list[dict[str, Any]]:
    """JSON_MIN: a row for each annotation that was not skipped, and for each task without one."""
    rows = []
    for place, task in enumerate(tasks):
        for number, (word, reason) in enumerate(answers.get(place, ((None, None),))):
            found = {"preference": word, "reason": reason}
            given = {name: value for name, value in found.items() if value is not None}
            at = _TIME.format(minute=number) if word else None
            rows.append(
                {
                    **task["data"],
                    "id": 500 + place,
                    **given,
                    "annotator": 10 + number if word else None,
                    "annotation_id": 1000 + number if word else None,
                    "created_at": at,
                    "updated_at": at,
                    "lead_time": 4.288 if word else None,
                }
            )
    return rows


def argilla(
    records: Sequence[Mapping[str, Any]], answers: Mapping[int, Answers]
) -> list[dict[str, Any]]:
    """`to_json` of records: place of a record -> answers; the others have none."""
    return [
        {
            "id": record["id"],
            "fields": record["fields"],
            "metadata": {},
            "suggestions": {},
            "responses": _responses(answers.get(place, ())),
            "vectors": {},
            "status": "completed" if place in answers else "pending",
            "_server_id": "c5a1a0a4-7d2c-4e8c-9d5e-0f2b8e4a5c7d",
        }
        for place, record in enumerate(records)
    ]


def _responses(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for number, (word, reason) in enumerate(answers):
        user = f"59f7bf7b-b818-4b6f-8f80-e7cce9c25ee{number}"
        if word is not None:
            found.setdefault("preference", []).append({"value": word, "user_id": user})
        if reason is not None:
            found.setdefault("reason", []).append({"value": reason, "user_id": user})
    return found
