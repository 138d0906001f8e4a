"""What a byte belongs to follows from the bytes before it."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinfer.structured.json_place import JsonPart, JsonPlace

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.printable + "é😀"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(string.printable), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", JsonPart.BOUNDARY),
        ("{", JsonPart.BOUNDARY),
        ('{"a', JsonPart.KEY),
        ('{"a"', JsonPart.BOUNDARY),
        ('{"a": "b', JsonPart.STRING),
        ('{"a": "b\\"', JsonPart.STRING),
        ('{"a": "b\\\\"', JsonPart.BOUNDARY),
        ('{"a": -1', JsonPart.NUMBER),
        ('{"a": 1e', JsonPart.NUMBER),
        ('{"a": tr', JsonPart.LITERAL),
        ('{"a": [1, "x', JsonPart.STRING),
        ('{"a": ["x"], "b', JsonPart.KEY),
        ('{"a": {"b": 1}, "c', JsonPart.KEY),
        ('["a", {"b": 1}, "c', JsonPart.STRING),
    ],
)
def test_the_part_at_the_end_of_a_text(text: str, part: JsonPart) -> None:
    assert JsonPlace().behind(text.encode()).part is part


@given(VALUES, st.booleans())
def test_a_whole_value_closes_every_bracket_and_string(value: object, is_indented: bool) -> None:
    text = json.dumps(value, indent=2 if is_indented else None, ensure_ascii=False).encode()
    place = JsonPlace().behind(text)
    assert place.containers == b"" and place.part not in {JsonPart.KEY, JsonPart.STRING}


@given(st.binary(max_size=30))
def test_any_bytes_have_a_place(text: bytes) -> None:
    whole = JsonPlace().behind(text)
    assert whole == JsonPlace().behind(text[: len(text) // 2]).behind(text[len(text) // 2 :])
