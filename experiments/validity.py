"""Does a text have the form that was asked for, by validators that know nothing of grammars?

Always true: JSON is judged by two independent validators, and both must agree that it is valid.
"""

from __future__ import annotations

import json
import re
from typing import Any

from specinfer.forms import StructuredOutputs


def has_form(text: str, form: StructuredOutputs) -> bool | None:
    """Whether a finished text has the form; None for forms that only a parser of their own could judge."""
    if form.reasoning_end is not None:
        _before, marker, text = text.partition(form.reasoning_end)
        if not marker:
            return False
    if form.json is not None:
        return follows_schema(text, schema_of(form))
    if form.json_object:
        return follows_schema(text, {"type": "object"})
    if form.choice is not None:
        return text in form.choice
    if form.regex is not None:
        return re.fullmatch(form.regex, text, re.ASCII) is not None
    return None


def schema_of(form: StructuredOutputs) -> Any:
    """The JSON schema of a form, however it was given."""
    if isinstance(form.json, str):
        return json.loads(form.json)
    if isinstance(form.json, type):
        return form.json.model_json_schema()  # type: ignore[attr-defined]
    return form.json


def follows_schema(text: str, schema: dict[str, Any] | bool) -> bool:
    """Whether a text is JSON and valid under a schema."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return is_instance(value, schema)


def is_instance(value: Any, schema: dict[str, Any] | bool) -> bool:
    """Whether both validators take a value for valid."""
    import jsonschema_rs
    from jsonschema.validators import validator_for

    return bool(validator_for(schema)(schema).is_valid(value)) and bool(jsonschema_rs.is_valid(schema, value))


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
