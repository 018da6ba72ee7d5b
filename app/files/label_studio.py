"""Label Studio: the tasks that it imports, its labelling configuration, and what it exports.

Written and read as its documentation describes them for release 1.13 and later
(labelstud.io/guide/tasks, /guide/task_format, /guide/export and /tags): tasks and annotations in
JSON, and JSON_MIN, in which the data and the answers of an annotation are columns of one row.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.files.reading import FileRow
from app.service.labelling.pairs import BlindPair
from app.service.labelling.tickets import CANNOT, WORDS, ToolAnswer, ticket_of

# JSON_MIN writes the number of a task over a column `id`.
_TICKET, _WORD, _REASON = "audit", "preference", "reason"

_CHOICES = "\n".join(
    f'    <Choice value="{word}" hotkey="{number}"/>' for number, word in enumerate(WORDS, start=1)
)
# `valueType` keeps a text that is an address from being loaded.
CONFIGURATION = f"""\
<View>
  <Header value="Which response is better?"/>
  <Text name="question" value="$question" valueType="text"/>
  <View style="display: flex; gap: 2em">
    <View style="flex: 1">
      <Header value="Left"/>
      <Text name="left" value="$left" valueType="text"/>
    </View>
    <View style="flex: 1">
      <Header value="Right"/>
      <Text name="right" value="$right" valueType="text"/>
    </View>
  </View>
  <Choices name="{_WORD}" toName="question" choice="single-radio" required="true">
{_CHOICES}
  </Choices>
  <TextArea name="{_REASON}" toName="question" maxSubmissions="1" rows="1"
            placeholder="Why it cannot be labelled" visibleWhen="choice-selected"
            whenTagName="{_WORD}" whenChoiceValue="{CANNOT}"/>
</View>
"""


def task_of(pair: BlindPair) -> dict[str, Any]:
    """A task that shows a pair."""
    shown = pair.text
    return {
        "data": {
            _TICKET: ticket_of(pair),
            "question": shown.question,
            "left": shown.left,
            "right": shown.right,
        }
    }


def is_export(row: FileRow) -> bool:
    """Whether a row is a task of an export, or a row of JSON_MIN."""
    return "data" in row.fields or _TICKET in row.fields


def answers_of(row: FileRow) -> Iterator[ToolAnswer]:
    """Yields the answers to a task; one without an answer if nobody has submitted any."""
    if "data" not in row.fields:
        yield _answer(row.place, row.fields, row.fields, row.fields)
        return
    data, annotations = row.fields["data"], row.fields.get("annotations") or []
    if not isinstance(data, dict) or not isinstance(annotations, list):
        yield ToolAnswer(place=row.place, problem="this is not a task of Label Studio")
        return
    submitted = [
        (f"{row.place}, annotation {number}" if len(annotations) > 1 else row.place, annotation)
        for number, annotation in enumerate(annotations, start=1)
        if not (isinstance(annotation, dict) and annotation.get("was_cancelled"))
    ]
    for place, annotation in submitted:
        try:
            yield _answer(place, data, _results(annotation), annotation)
        except (AttributeError, KeyError, TypeError):
            yield ToolAnswer(place=place, problem="this is not an annotation of Label Studio")
    if not submitted:
        yield _answer(row.place, data, {}, {})


def _answer(
    place: str, data: Mapping[str, Any], results: Mapping[str, Any], times: Mapping[str, Any]
) -> ToolAnswer:
    at = times.get("updated_at") or times.get("created_at")
    return ToolAnswer(
        place=place,
        ticket=data.get(_TICKET),
        question=data.get("question"),
        left=data.get("left"),
        right=data.get("right"),
        word=results.get(_WORD),
        reason=results.get(_REASON),
        at=at if isinstance(at, str) else "",
    )


def _results(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """The results of an annotation as JSON_MIN has them: one value as it is, several as a list."""
    kinds = {_WORD: "choices", _REASON: "text"}
    found: dict[str, list[Any]] = {}
    for result in annotation["result"]:
        # A configuration may ask for more than these two.
        if result["from_name"] in kinds:
            values = result["value"][kinds[result["from_name"]]]
            found.setdefault(result["from_name"], []).extend(values)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
