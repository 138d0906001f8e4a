"""Which grammar does a request ask for?

Always true: what is wrong with a form (no schema, a pattern that does not parse, a grammar without a root, a limit
exceeded) is a GrammarError here, before anything is compiled; two forms with the same meaning and spelling give equal
specs, whatever they were given as.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from specinfer.errors import GrammarError
from specinfer.forms import GrammarLimits, StructuredOutputs
from specinfer.protocols import GrammarKind, GrammarSpec
from specinfer.structured.limits import check_alternatives, check_pattern, check_source
from specinfer.structured.patterns import portable
from specinfer.structured.schemas import subschemas, target
from specinfer.structured.sources import schema_of, shown, tags_of

_ROOT = re.compile(r"(?m)^[ \t]*root[ \t]*::=")


def spec_of(wanted: StructuredOutputs, limits: GrammarLimits) -> GrammarSpec:
    """What to compile for a form, found to be right as far as can be seen without compiling."""
    if wanted.regex is not None:
        return _regex_spec(wanted.regex, limits)
    if wanted.choice is not None:
        check_alternatives("choice", len(wanted.choice), limits)
        return _regex_spec("|".join(map(re.escape, wanted.choice)), limits)
    if wanted.grammar is not None:
        return _ebnf_spec(wanted.grammar, limits)
    if wanted.structural_tag is not None:
        return _tag_spec(wanted.structural_tag, wanted.max_whitespace, limits)
    source = _json_text({"type": "object"} if wanted.json is None else wanted.json, "JSON schema")
    check_source(GrammarKind.JSON_SCHEMA, source, limits)
    schema = schema_of(source)
    _check_schema(schema, limits)
    return GrammarSpec(GrammarKind.JSON_SCHEMA, _compact(schema), wanted.max_whitespace)


def schemas_in(spec: GrammarSpec) -> list[tuple[str, dict[str, Any]]]:
    """The JSON schemas of a form, each with the JSON pointer to it."""
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return [("", schema_of(spec.source))]
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        return [(f"/structures/{i}/schema", dict(tag.schema)) for i, tag in enumerate(tags_of(spec.source))]
    return []


def _regex_spec(pattern: str, limits: GrammarLimits) -> GrammarSpec:
    check_pattern("regex", pattern, limits)
    portable(pattern)
    return GrammarSpec(GrammarKind.REGEX, pattern)


def _ebnf_spec(grammar: str, limits: GrammarLimits) -> GrammarSpec:
    check_source(GrammarKind.EBNF, grammar, limits)
    if not _ROOT.search(grammar):
        raise GrammarError(f"the EBNF grammar {shown(grammar)} has no rule `root ::= ...`; add one")
    return GrammarSpec(GrammarKind.EBNF, grammar)


def _tag_spec(given: Mapping[str, Any] | str, max_whitespace: int, limits: GrammarLimits) -> GrammarSpec:
    source = _json_text(given, "structural tag")
    check_source(GrammarKind.STRUCTURAL_TAG, source, limits)
    for tag in tags_of(source):
        _check_schema(dict(tag.schema), limits)
    return GrammarSpec(GrammarKind.STRUCTURAL_TAG, _compact(json.loads(source)), max_whitespace)


def _json_text(given: Any, name: str) -> str:
    """JSON that came as text, as a mapping or as a Pydantic model's class."""
    if isinstance(given, str):
        return given
    if isinstance(given, type):
        make = getattr(given, "model_json_schema", None)
        if make is None:
            raise GrammarError(
                f"structured_outputs.json is the class {given.__name__}, which has no model_json_schema(); give a "
                f"Pydantic model, a dict or a text"
            )
        given = make()
    try:
        return _compact(given)
    except RecursionError as error:
        raise GrammarError(f"the {name} is nested too deeply; flatten it") from error
    except (TypeError, ValueError) as error:
        raise GrammarError(f"the {name} is not JSON: {error}; got {shown(given)}") from error


def _compact(value: Any) -> str:
    return json.dumps(
        dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


def _check_schema(schema: dict[str, Any], limits: GrammarLimits) -> None:
    """Raise GrammarError unless a schema is valid, self-contained and within the limits."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for

    for pointer, inner in subschemas(schema):
        if isinstance(inner, Mapping):
            _check_sizes(pointer, inner, limits)
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "its root"
        raise GrammarError(f"not a valid JSON schema, at {where}: {_line(error.message)}; mend it") from error
    for pointer, inner in subschemas(schema):
        if isinstance(inner, Mapping) and isinstance(inner.get("$ref"), str):
            _check_ref(pointer, inner["$ref"], schema)


def _check_sizes(pointer: str, schema: Mapping[str, Any], limits: GrammarLimits) -> None:
    if isinstance(schema.get("enum"), list):
        check_alternatives(f"enum at #{pointer}", len(schema["enum"]), limits)
    patterns = [schema.get("pattern"), *_keys(schema.get("patternProperties"))]
    for pattern in patterns:
        if isinstance(pattern, str):
            check_pattern(f"pattern {shown(pattern)} at #{pointer}", pattern, limits)


def _check_ref(pointer: str, ref: str, root: Any) -> None:
    if not ref.startswith("#"):
        raise GrammarError(f"the $ref {shown(ref)} at #{pointer} leaves the schema, and nothing is fetched; copy it in")
    try:
        if ref == "#" or ref.startswith("#/"):
            target(root, ref)
    except (LookupError, TypeError, ValueError) as error:
        raise GrammarError(f"the $ref {shown(ref)} at #{pointer} points at nothing; mend it") from error


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Mapping) else []


def _line(text: str) -> str:
    return shown(" ".join(text.split()))[1:-1]
