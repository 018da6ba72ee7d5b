"""JSON in pieces equals the JSON of one call, and malformed JSON is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.service.calibration.json_pieces import JsonReader, array_pieces, object_pieces

values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text(max_size=3), values, max_size=6), st.sampled_from([None, 1]))
def test_pieces_are_written_and_read_like_one_call(
    content: dict[str, object], indent: int | None
) -> None:
    whole = json.dumps(content, separators=(",", ":"))
    assert "".join(object_pieces(content.items())) == whole
    listed = list(content.values())
    assert "".join(array_pieces(listed)) == json.dumps(listed, separators=(",", ":"))
    assert read_object(f" {json.dumps(content, indent=indent)}\n") == content
    assert read_array(json.dumps(listed, indent=indent)) == listed


def test_more_members_than_one_call_writes_are_one_object() -> None:
    many = {str(i): i for i in range(5000)}
    assert "".join(object_pieces(many.items())) == json.dumps(many, separators=(",", ":"))
    assert "".join(array_pieces(many)) == json.dumps(list(many), separators=(",", ":"))


def read_object(text: str) -> dict[str, object]:
    reader = JsonReader(text)
    found = {key: reader.value() for key in reader.members()}
    reader.end()
    return found


def read_array(text: str) -> list[object]:
    reader = JsonReader(text)
    found = list(reader.elements())
    reader.end()
    return found


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"a":1', '{"a":1,}', '{"a"}', '{"a":}', "{1:2}", '{"a":1 "b":2}', "{}{}"],
)
def test_a_malformed_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(Expecting|not a|more |Illegal)"):
        read_object(text)


@pytest.mark.parametrize("text", ["[", "{}", "[1", "[1,]", "[1 2]", "[,]", "[] 1"])
def test_a_malformed_array_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(Expecting|not a|more |Illegal)"):
        read_array(text)
