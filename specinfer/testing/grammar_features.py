"""What does a backend make of each feature of JSON Schema, seen on instances?

A feature has probes: a schema that holds it, and texts that are and are not its instances. Always true: a text is
judged by the whole grammar, byte by byte, up to the end; what a backend says of itself is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specinfer.errors import GrammarError
from specinfer.protocols import Enforcement, GrammarBackend, GrammarKind, GrammarSpec, TokenTable


@dataclass(frozen=True, slots=True)
class Probe:
    """A schema with texts that are its instances and texts that are not."""

    schema: Any
    valid: Sequence[str]
    invalid: Sequence[str]


BYTES = TokenTable([*(bytes([byte]) for byte in range(256)), b""], frozenset({256}))
"""A vocabulary in which every text is one sequence of tokens"""


def verdicts(backend: GrammarBackend, probe: Probe) -> tuple[list[bool], list[bool]] | None:
    """Of each valid and of each invalid text, whether the backend's grammar takes it; None where it compiles none.

    backend: bound to BYTES.
    """
    source = json.dumps(probe.schema, ensure_ascii=False, separators=(",", ":"))
    try:
        grammar = backend.load(backend.compile(GrammarSpec(GrammarKind.JSON_SCHEMA, source, max_whitespace=0)))
    except GrammarError:
        return None

    def takes(text: str) -> bool:
        matcher = grammar.matcher()
        return all(matcher.accept(byte) for byte in text.encode()) and matcher.is_accepting

    return [takes(text) for text in probe.valid], [takes(text) for text in probe.invalid]


def observed(backend: GrammarBackend, probes: Sequence[Probe]) -> Enforcement:
    """What a backend, bound to BYTES, makes of a feature: the worst of its probes. A probe that it refuses says
    nothing, as long as it compiles another one: a refusal is seen when a request comes.
    """
    results = [result for result in (verdicts(backend, probe) for probe in probes) if result is not None]
    if not results:
        return Enforcement.REFUSED
    if any(any(invalid) for _, invalid in results):
        return Enforcement.WIDENED
    if not all(all(valid) for valid, _ in results):
        return Enforcement.NARROWED
    return Enforcement.EXACT


def _of(**schema: Any) -> dict[str, Any]:
    return schema


def _object(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


_INT = {"type": "integer"}
_STR = {"type": "string"}
_CLOSED = {"additionalProperties": False}
D4 = "http://json-schema.org/draft-04/schema#"
D7 = "http://json-schema.org/draft-07/schema#"

PROBES: dict[str, list[Probe]] = {
    # ------------------------------------------------------------------------------------------------ types
    "type string": [
        Probe(_STR, ['""', '"a"', '"é😀"', '"\\n\\"\\\\"'], ["1", "null", "a", '"', '"a', '"\n"', '"\\x"'])
    ],
    "type integer": [Probe(_INT, ["0", "-1", "120", "9007199254740993"], ["1.5", "01", "--1", '"1"', "null", "-", ""])],
    "type number": [
        Probe(_of(type="number"), ["0", "-1", "1.5", "-0.25", "1e3", "2.5E-3"], [".5", "1.", "01", "1e", '"1"', "NaN"])
    ],
    "type boolean": [Probe(_of(type="boolean"), ["true", "false"], ["1", "True", '"true"', "null", "tru"])],
    "type null": [Probe(_of(type="null"), ["null"], ["0", '"null"', "Null", ""])],
    "type array": [Probe(_of(type="array", items=_INT), ["[]", "[1]", "[1,2,3]"], ["{}", "[1,]", "[", "1", '["a"]'])],
    "type object": [
        Probe(_object({"a": _INT}, **_CLOSED), ["{}", '{"a":1}'], ["[]", '{"a":1,}', "{", '{"a"}', '{"a":1,"a":2.5}'])
    ],
    "type list": [
        Probe(_of(type=["string", "null"]), ['"a"', "null"], ["1", "true", "[]", "{}"]),
        Probe(_of(type=["integer", "boolean"], minimum=3), ["3", "true"], ["2", '"a"', "null"]),
        Probe(_of(type=["string", "integer"], maxLength=1, maximum=5), ['"a"', "5"], ['"ab"', "6", "null"]),
        Probe(
            _of(type=["array", "object"], items=_INT, properties={"a": _STR}, additionalProperties=False),
            ["[1]", '{"a":"x"}', "{}"],
            ['["a"]', '{"a":1}', '{"b":1}', "1"],
        ),
    ],
    "any value": [
        Probe({}, ["1", "null", '"a"', "[1,[]]", '{"a":{"b":[]}}', "true", "-1.5e3"], ["", "[", "a", "{1:2}"]),
        Probe(_object({"a": {}}, required=["a"], **_CLOSED), ['{"a":1}', '{"a":[null]}'], ['{"a":}', "{}"]),
    ],
    "false schema": [
        Probe(_object({"a": False, "b": _INT}, **_CLOSED), ["{}", '{"b":1}'], ['{"a":1}', '{"a":null,"b":1}']),
        Probe(_object({"a": False}), ["{}", '{"b":1}'], ['{"a":1}', '{"a":null}']),
        Probe(_of(anyOf=[False, _INT]), ["1"], ['"a"', "null"]),
    ],
    "keyword of another type": [
        Probe(_of(type="string", minimum=3), ['""', '"1"'], ["1", "5"]),
        Probe(_of(type="integer", maxLength=1), ["1", "100"], ['"a"']),
        Probe(_of(type="object", items=_INT), ["{}", '{"a":"x"}'], ["[1]"]),
        Probe(_of(type="array", properties={"a": _INT}, required=["a"]), ["[]", '["a"]'], ["{}", '{"a":1}']),
        Probe(_of(type="boolean", pattern="^a$"), ["true"], ['"a"']),
    ],
    "string keywords without type": [
        Probe(_of(minLength=2), ['"ab"', "1", "null", "[]", '{"a":1}', "true"], ['"a"']),
        Probe(_of(pattern="^a$"), ['"a"', "1", "[]"], ['"b"']),
    ],
    "number keywords without type": [Probe(_of(minimum=2), ["2", "2.5", '"a"', "null", "[]", '{"a":1}'], ["1", "-3"])],
    "array keywords without type": [
        Probe(_of(items=_INT), ["[1]", "[]", '"a"', "1", '{"a":1}', "null"], ['["a"]']),
        Probe(_of(minItems=1), ["[1]", '"a"', "{}"], ["[]"]),
    ],
    "object keywords without type": [
        Probe(_of(properties={"a": _INT}), ['{"a":1}', "{}", '{"b":"x"}', '"a"', "1", "[1]", "null"], ['{"a":"x"}']),
        Probe(_of(properties={"a": _INT}, required=["a"]), ['{"a":1}', '"a"', "1", "[]"], ["{}", '{"a":"x"}']),
        Probe(_of(additionalProperties=_INT), ['{"a":1}', "{}", "[]"], ['{"a":"x"}']),
    ],
    # ------------------------------------------------------------------------------------------- fixed values
    "enum": [
        Probe(_of(enum=["a", "b c", None, True]), ['"a"', '"b c"', "null", "true"], ['"b"', "false", "1", '""', '"a']),
        Probe(_of(enum=["é😀", 'q"\\', "a/b"]), ['"é😀"', '"q\\"\\\\"', '"a/b"'], ['"q"', '"a"']),
        Probe(_of(type="string", enum=["a", "ab"]), ['"a"', '"ab"'], ['"b"', '"abc"', "null"]),
    ],
    "enum of numbers": [
        Probe(_of(enum=[1, -2, 2.5, 100]), ["1", "-2", "2.5", "100"], ["2", "10", "-1", "1.5", '"1"']),
        Probe(_of(type="integer", enum=[1, 12]), ["1", "12"], ["2", "123"]),
    ],
    "enum of objects or arrays": [
        Probe(_of(enum=[[1, "a"], {"b": None}, []]), ['[1,"a"]', '{"b":null}', "[]"], ["[1]", "{}", '{"b":1}'])
    ],
    "enum beyond type": [
        Probe(_of(type="string", enum=["a", 1, None]), ['"a"'], ["1", "null"]),
        Probe(_of(type=["integer", "null"], enum=["a", 1, None]), ["1", "null"], ['"a"']),
    ],
    "enum with other keywords": [
        Probe(_of(type="string", enum=["a", "ab", "abc"], maxLength=2), ['"a"', '"ab"'], ['"abc"']),
        Probe(_of(type="integer", enum=[1, 5, 9], minimum=4), ["5", "9"], ["1"]),
        Probe(_of(enum=["a", "b"], pattern="^a$"), ['"a"'], ['"b"']),
        Probe(_of(enum=["a", "b"], anyOf=[{"const": "a"}]), ['"a"'], ['"b"']),
    ],
    "const": [
        Probe(_of(const="a b"), ['"a b"'], ['"a"', "1", "null"]),
        Probe(_of(const=None), ["null"], ['"null"', "0"]),
        Probe(_of(type="string", const="é"), ['"é"'], ['"e"']),
    ],
    "const of numbers": [
        Probe(_of(const=12), ["12"], ["1", "123", '"12"']),
        Probe(_of(const=2.5), ["2.5"], ["2", "2.6"]),
    ],
    "const of objects or arrays": [
        Probe(_of(const={"a": [1, None]}), ['{"a":[1,null]}'], ["{}", '{"a":[1]}']),
        Probe(_of(const=[]), ["[]"], ["[1]"]),
    ],
    "const beyond type": [Probe(_of(anyOf=[{"type": "integer", "const": "a"}, {"const": "b"}]), ['"b"'], ['"a"', "1"])],
    "const with other keywords": [
        Probe(_of(anyOf=[{"const": "abc", "maxLength": 2}, {"const": "b"}]), ['"b"'], ['"abc"']),
        Probe(_of(const="a", minLength=1), ['"a"'], ['""']),
    ],
    # ----------------------------------------------------------------------------------------------- strings
    "minLength": [
        Probe(
            _of(type="string", minLength=2), ['"ab"', '"é😀"', '"\\n\\t"', '"abcdef"'], ['""', '"a"', '"😀"', '"\\n"']
        )
    ],
    "maxLength": [
        Probe(
            _of(type="string", maxLength=2), ['""', '"ab"', '"é😀"', '"\\n\\t"'], ['"abc"', '"😀😀😀"', '"\\n\\n\\n"']
        ),
        Probe(_of(type="string", minLength=1, maxLength=1), ['"a"', '"😀"', '"\\""'], ['""', '"ab"']),
        Probe(_of(type="string", maxLength=0), ['""'], ['"a"']),
    ],
    "pattern": [
        Probe(_of(type="string", pattern="^a+$"), ['"a"', '"aaa"'], ['""', '"b"', '"ab"', "1"]),
        Probe(
            _of(type="string", pattern="^(ab|c){1,2}[x-z0-9]?$"), ['"ab"', '"cabz"', '"c9"'], ['"a"', '"ccc"', '"abw"']
        ),
        Probe(_of(type="string", pattern="^(a|b)$"), ['"a"', '"b"'], ['"ab"', '"xa"']),
        Probe(_of(type="string", pattern="^[a-zà-ÿ]{2}-\\.$"), ['"éa-."'], ['"ea-a"', '"e-."']),
    ],
    "pattern with an open end": [
        Probe(_of(type="string", pattern="a"), ['"a"', '"bab"', '"ax"'], ['""', '"b"']),
        Probe(_of(type="string", pattern="^a"), ['"a"', '"ab"', '"a\\n😀"'], ['"ba"', '""']),
        Probe(_of(type="string", pattern="a$"), ['"a"', '"ba"'], ['"ab"', '""']),
        Probe(_of(type="string", pattern="^a|b$"), ['"a"', '"b"', '"ax"', '"xb"'], ['"xa"', '"bx"']),
        Probe(_of(type="string", pattern=""), ['""', '"x"'], ["1"]),
    ],
    "pattern with a class escape": [
        Probe(_of(type="string", pattern="^\\d+$"), ['"09"'], ['"a"', '"٣"', '"²"']),
        Probe(_of(type="string", pattern="^\\w$"), ['"a"', '"_"', '"7"'], ['"é"', '"-"', '"ß"']),
        Probe(_of(type="string", pattern="^[\\d.]+$"), ['"1.2"'], ['"a"', '"٣"']),
        Probe(_of(type="string", pattern="^a\\sb$"), ['"a b"', '"a\\tb"'], ['"ab"', '"a-b"']),
    ],
    "pattern with any character": [
        Probe(
            _of(type="string", pattern="^a.b$"), ['"axb"', '"a😀b"', '"a\\"b"', '"a b"'], ['"ab"', '"a\\nb"', '"axxb"']
        )
    ],
    "pattern with a negated class": [
        Probe(_of(type="string", pattern="^[^a]$"), ['"b"', '"é"', '"\\n"', '"\\""', '"\\\\"'], ['"a"', '""', '"bb"']),
        Probe(_of(type="string", pattern="^\\S$"), ['"b"', '"é"', '"\\""'], ['" "', '"\\n"']),
    ],
    "pattern with a character that JSON escapes": [
        Probe(_of(type="string", pattern='^a"b$'), ['"a\\"b"'], ['"ab"', '"a"b"']),
        Probe(_of(type="string", pattern="^a\\\\b$"), ['"a\\\\b"'], ['"ab"', '"a\\b"']),
        Probe(_of(type="string", pattern="^a\\nb$"), ['"a\\nb"'], ['"anb"', '"a\nb"']),
    ],
    "pattern that is not portable": [
        Probe(_of(type="string", pattern="^(?!a)[ab]$"), ['"b"'], ['"a"']),
        Probe(_of(type="string", pattern="^(a|b)\\1$"), ['"aa"', '"bb"'], ['"ab"']),
    ],
    "pattern with minLength or maxLength": [
        Probe(_of(type="string", pattern="^a+$", maxLength=3), ['"a"', '"aaa"'], ['""', '"b"', '"aaaa"', '"ab"']),
        Probe(_of(type="string", pattern="^[ab]*$", minLength=2), ['"ab"', '"aba"'], ['""', '"a"', '"ac"']),
        Probe(_of(type="string", pattern="b", maxLength=2), ['"b"', '"ab"'], ['"a"', '"aab"']),
    ],
    "unknown format": [Probe(_of(type="string", format="ports"), ['""', '"a"', '"80:80"'], ["1", "null"])],
    "format with pattern, minLength or maxLength": [
        Probe(_of(type="string", format="date", pattern="^2"), ['"2024-01-31"'], ['"1999-01-31"', '"2"']),
        Probe(_of(type="string", format="email", maxLength=7), ['"a@b.com"'], ['"abc@b.com"', '"abc"']),
    ],
    "format date": [
        Probe(
            _of(type="string", format="date"),
            ['"2024-02-28"', '"1999-12-31"'],
            ['"2024-13-01"', '"2024-01-32"', '"24-1-1"', '""', '"a"'],
        )
    ],
    "format date-time": [
        Probe(
            _of(type="string", format="date-time"),
            ['"2024-02-28T01:02:03Z"', '"1999-12-31T23:59:59.123+01:00"'],
            ['"2024-02-28"', '"2024-02-28T25:00:00Z"', '"2024-02-28T01:02:03"', '""', '"a"'],
        )
    ],
    "format time": [
        Probe(_of(type="string", format="time"), ['"01:02:03Z"', '"23:59:59+02:00"'], ['"24:00:00Z"', '"1:2"', '""'])
    ],
    "format duration": [
        Probe(_of(type="string", format="duration"), ['"P1D"', '"PT1H30M"', '"P3W"'], ['"P"', '"1D"', '""'])
    ],
    "format email": [
        Probe(_of(type="string", format="email"), ['"a@b.com"', '"x.y+z@a-b.org"'], ['"a"', '"@b.com"', '"a@"', '""'])
    ],
    "format hostname": [
        Probe(_of(type="string", format="hostname"), ['"a.com"', '"localhost"'], ['"-a"', '"a..b"', '"a b"', '""'])
    ],
    "format ipv4": [
        Probe(
            _of(type="string", format="ipv4"),
            ['"1.2.3.4"', '"255.255.255.0"'],
            ['"256.1.1.1"', '"1.2.3"', '"1.2.3.4.5"', '""'],
        )
    ],
    "format ipv6": [
        Probe(
            _of(type="string", format="ipv6"),
            ['"::1"', '"2001:db8::ff00:42"', '"1:2:3:4:5:6:7:8"'],
            ['"1:2"', '":::"', '"g::1"', '""'],
        )
    ],
    "format uri": [
        Probe(
            _of(type="string", format="uri"),
            ['"http://a.com/b?c=d#e"', '"urn:isbn:1"'],
            ['"a b"', '"//a"', '""', '"abc"'],
        )
    ],
    "format uuid": [
        Probe(
            _of(type="string", format="uuid"),
            ['"123e4567-e89b-12d3-a456-426614174000"'],
            ['"123e4567"', '"123e4567-e89b-12d3-a456-42661417400g"', '""'],
        )
    ],
    # ----------------------------------------------------------------------------------------------- numbers
    "minimum": [
        Probe(_of(type="integer", minimum=3), ["3", "10", "999999"], ["2", "0", "-5", "-30"]),
        Probe(_of(type="integer", minimum=-3), ["-3", "-1", "0", "7"], ["-4", "-10"]),
    ],
    "maximum": [
        Probe(_of(type="integer", maximum=120), ["120", "0", "99", "-1", "-500"], ["121", "200", "1000"]),
        Probe(_of(type="integer", minimum=7, maximum=12), ["7", "9", "10", "12"], ["6", "13", "70", "-8", "1"]),
    ],
    "exclusiveMinimum": [Probe(_of(type="integer", exclusiveMinimum=3), ["4", "10"], ["3", "2", "-5"])],
    "exclusiveMaximum": [Probe(_of(type="integer", exclusiveMaximum=3), ["2", "-10"], ["3", "10"])],
    "minimum of a number": [
        Probe(_of(type="number", minimum=1.5), ["1.5", "2", "1.75", "100"], ["1.4", "1", "0", "-2", "1.49"]),
        Probe(_of(type="number", minimum=0), ["0", "0.5", "3"], ["-1", "-0.5"]),
    ],
    "maximum of a number": [
        Probe(_of(type="number", maximum=1.5), ["1.5", "1", "-100", "0.25"], ["1.6", "2", "15", "1.51"]),
        Probe(_of(type="number", minimum=0, maximum=1), ["0", "1", "0.5"], ["1.01", "-0.1", "2"]),
    ],
    "exclusiveMinimum of a number": [Probe(_of(type="number", exclusiveMinimum=0), ["0.1", "1"], ["0", "-1", "0.0"])],
    "exclusiveMaximum of a number": [Probe(_of(type="number", exclusiveMaximum=1), ["0.9", "-1"], ["1", "1.0", "1.5"])],
    "exclusiveMinimum as a boolean": [
        Probe({"$schema": D4, "type": "integer", "minimum": 3, "exclusiveMinimum": True}, ["4"], ["3", "2"])
    ],
    "exclusiveMaximum as a boolean": [
        Probe({"$schema": D4, "type": "integer", "maximum": 3, "exclusiveMaximum": True}, ["2"], ["3", "4"])
    ],
    "bound beyond 2^53": [
        Probe(_of(type="integer", maximum=2**63 - 1), ["9223372036854775807", "0"], ["9223372036854775808"]),
        Probe(
            _of(type="integer", minimum=0, maximum=18446744073709551615),
            ["18446744073709551615"],
            ["18446744073709551616", "-1"],
        ),
    ],
    "fraction as an integer's bound": [
        Probe(_of(type="integer", minimum=1.5, maximum=3.5), ["2", "3"], ["1", "4", "1.5"]),
        Probe(_of(type="integer", minimum=-1.5), ["-1", "0"], ["-2"]),
    ],
    "two bounds on one side": [
        Probe(_of(type="integer", minimum=3, exclusiveMinimum=5), ["6"], ["3", "5"]),
        Probe(_of(type="integer", maximum=3, exclusiveMaximum=5), ["3"], ["4", "5"]),
    ],
    "multipleOf": [Probe(_of(type="integer", multipleOf=3), ["0", "3", "12", "-6"], ["1", "13", "-2"])],
    "multipleOf of a number": [Probe(_of(type="number", multipleOf=2), ["0", "2", "14"], ["1", "2.5", "13"])],
    "multipleOf a fraction": [Probe(_of(type="number", multipleOf=0.5), ["0", "2.5", "1"], ["0.3", "2.25"])],
    "multipleOf with bounds": [
        Probe(_of(type="integer", multipleOf=5, minimum=7, maximum=30), ["10", "30"], ["5", "8", "35", "0"])
    ],
    # ------------------------------------------------------------------------------------------------ arrays
    "items": [
        Probe(_of(type="array", items={"enum": ["a", "b"]}), ["[]", '["a","b"]'], ['["c"]', "[1]", '["a",1]']),
        Probe(_of(type="array", items={"type": "array", "items": _INT}), ["[[1],[]]"], ["[1]", '[["a"]]']),
    ],
    "items: false": [Probe(_of(type="array", items=False), ["[]"], ["[1]"])],
    "items as a list": [
        Probe(
            {"$schema": D7, "type": "array", "items": [_INT, _STR]},
            ['[1,"a"]', "[1]", "[]", '[1,"a",null]'],
            ['["a"]', "[1,2]"],
        )
    ],
    "additionalItems": [
        Probe(
            {"$schema": D7, "type": "array", "items": [_INT], "additionalItems": False},
            ["[1]", "[]"],
            ['["a"]', "[1,2]"],
        ),
        Probe(
            {"$schema": D7, "type": "array", "items": [_INT], "additionalItems": _STR}, ['[1,"a"]', "[1]"], ["[1,2]"]
        ),
    ],
    "array of any items": [Probe(_of(type="array"), ["[]", '[1,"a",{},[null]]'], ["{}", "[1,", "1"])],
    "prefixItems": [
        Probe(
            _of(type="array", prefixItems=[_INT, _STR]), ['[1,"a"]', "[1]", "[]", '[1,"a",null]'], ['["a"]', "[1,2]"]
        ),
        Probe(_of(type="array", prefixItems=[_INT], items=False), ["[1]", "[]"], ['["a"]', "[1,2]"]),
        Probe(_of(type="array", prefixItems=[_INT], items=_STR), ['[1,"a"]', "[1]"], ["[1,2]"]),
    ],
    "a tuple with minItems or maxItems": [
        Probe(_of(type="array", prefixItems=[_INT, _STR], items=False, minItems=2), ['[1,"a"]'], ["[1]", "[]"]),
        Probe(_of(type="array", prefixItems=[_INT, _STR], maxItems=2), ['[1,"a"]', "[1]", "[]"], ['[1,"a",2]']),
        Probe(
            _of(type="array", prefixItems=[_INT], minItems=2, maxItems=3), ["[1,2]", "[1,2,3]"], ["[1]", "[1,2,3,4]"]
        ),
    ],
    "minItems": [Probe(_of(type="array", items=_INT, minItems=2), ["[1,2]", "[1,2,3]"], ["[]", "[1]"])],
    "maxItems": [
        Probe(_of(type="array", items=_INT, maxItems=2), ["[]", "[1,2]"], ["[1,2,3]"]),
        Probe(_of(type="array", items=_INT, minItems=1, maxItems=1), ["[1]"], ["[]", "[1,2]"]),
        Probe(_of(type="array", maxItems=0), ["[]"], ["[1]"]),
    ],
    "uniqueItems": [Probe(_of(type="array", items=_INT, uniqueItems=True), ["[1,2]", "[]"], ["[1,1]", "[1,2,1]"])],
    "contains": [Probe(_of(type="array", contains=_INT), ["[1]", '["a",1]'], ["[]", '["a"]'])],
    "minContains": [Probe(_of(type="array", contains=_INT, minContains=2), ["[1,2]"], ["[1]"])],
    "maxContains": [Probe(_of(type="array", contains=_INT, maxContains=1), ["[1]"], ["[1,2]"])],
    "unevaluatedItems": [Probe(_of(type="array", prefixItems=[_INT], unevaluatedItems=False), ["[1]"], ["[1,2]"])],
    # ----------------------------------------------------------------------------------------------- objects
    "properties": [
        Probe(
            _object({"a": _INT, "b": _object({"c": _STR}, required=["c"], **_CLOSED)}, required=["a", "b"], **_CLOSED),
            ['{"a":1,"b":{"c":"x"}}'],
            ['{"a":1}', '{"a":1,"b":{}}', '{"a":"x","b":{"c":"x"}}', '{"a":1,"b":{"c":1}}'],
        )
    ],
    "required": [
        Probe(
            _object({"a": _INT, "b": _INT}, required=["b"], **_CLOSED), ['{"b":1}', '{"a":1,"b":2}'], ["{}", '{"a":1}']
        ),
        Probe(_object({"a": _INT, "b": _INT}, required=["a"]), ['{"a":1}', '{"a":1,"b":2}'], ["{}", '{"b":1}']),
    ],
    "required names beyond properties": [
        Probe(_object({"a": _INT}, required=["a", "x"]), ['{"a":1,"x":2}', '{"a":1,"x":null}'], ['{"a":1}', "{}"]),
        Probe(_of(type="object", required=["x"]), ['{"x":1}', '{"x":"a"}'], ["{}", '{"y":1}']),
        Probe(_of(type="object", required=["x"], additionalProperties=_INT), ['{"x":1}'], ["{}", '{"x":"a"}']),
    ],
    "optional properties": [
        Probe(
            _object({"a": _INT, "b": _INT, "c": _INT}, **_CLOSED),
            ["{}", '{"a":1}', '{"b":1}', '{"c":1}', '{"a":1,"c":1}', '{"b":1,"c":2}', '{"a":1,"b":2,"c":3}'],
            ['{"d":1}', '{"a":1,"a":"x"}', '{,"a":1}', '{"a":1,,"b":1}'],
        ),
        Probe(_object({"a": _INT, "b": _INT}, required=["b"]), ['{"b":1}', '{"a":1,"b":1}'], ['{"a":1}', '{"b":"x"}']),
    ],
    "additionalProperties: false": [
        Probe(_object({"a": _INT}, **_CLOSED), ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"b":1}', '{"":1}']),
        Probe(_of(type="object", additionalProperties=False), ["{}"], ['{"a":1}']),
    ],
    "additionalProperties as a schema": [
        Probe(
            _of(type="object", additionalProperties=_INT),
            ["{}", '{"a":1,"b":2}', '{"":1}'],
            ['{"a":"x"}', '{"a":1,"b":null}'],
        ),
        Probe(
            _object({"a": _STR}, additionalProperties=_INT),
            ['{"a":"x","b":2}', '{"b":1}', "{}", '{"ab":1}'],
            ['{"b":"x"}', '{"a":1}', '{"a":"x","a":1}', '{"b":1,"a":1}', '{"\\u0061":1}'],
        ),
    ],
    "additional properties": [
        Probe(
            _object({"a": _INT}),
            ["{}", '{"a":1}', '{"b":"x"}', '{"a":1,"b":null,"c":[]}', '{"ab":"x"}', '{"":"x"}'],
            ['{"a":"x"}', '{"a":1,"a":"x"}', '{"b":1,"a":"x"}', '{"a":1,}'],
        ),
        Probe(
            _object({"a": _INT}, required=["a"]), ['{"a":1,"b":2}'], ['{"a":1,"a":"x"}', '{"b":1,"a":"x"}', '{"b":1}']
        ),
        Probe(_object({"a": _INT}, additionalProperties=True), ['{"a":1,"b":2}'], ['{"a":"x"}', '{"b":2,"a":"x"}']),
        Probe(_object({"a": _INT}), ['{"\\n":"x"}'], ['{"\\u0061":"x"}']),
        Probe(
            _object({"a": _INT}, patternProperties={"^x": _INT}),
            ['{"xa":1,"b":"x"}'],
            ['{"\\u0061":"x"}', '{"xa":"x"}'],
        ),
    ],
    "patternProperties": [
        Probe(
            _of(type="object", patternProperties={"^a[0-9]$": _INT}, additionalProperties=False),
            ["{}", '{"a1":1}', '{"a1":1,"a2":2}'],
            ['{"a1":"x"}', '{"b":1}', '{"a":1}', '{"a12":1}'],
        ),
        Probe(
            _of(type="object", patternProperties={"^[a-z]+$": _STR}, additionalProperties=False),
            ['{"ab":"x"}'],
            ['{"ab":1}', '{"1":"x"}', '{"":"x"}'],
        ),
    ],
    "patternProperties with an open end": [
        Probe(
            _of(type="object", patternProperties={"^x-": _INT}, additionalProperties=False),
            ['{"x-a":1}', '{"x-":1}'],
            ['{"x-a":"b"}', '{"a":1}', '{"ax-":1}'],
        ),
        Probe(
            _of(type="object", patternProperties={"b": _INT}, additionalProperties=False),
            ['{"b":1}', '{"abc":1}'],
            ['{"b":"x"}', '{"a":1}'],
        ),
    ],
    "patternProperties with a class escape": [
        Probe(
            _of(type="object", patternProperties={"^\\d+$": _INT}, additionalProperties=False),
            ['{"12":1}'],
            ['{"12":"x"}', '{"a":1}', '{"٣":1}'],
        )
    ],
    "patternProperties with any character": [
        Probe(
            _of(type="object", patternProperties={"^.$": _INT}, additionalProperties=False),
            ['{"a":1}', '{"é":1}', '{"\\"":1}'],
            ['{"a":"x"}', '{"ab":1}', '{"\\n":1}'],
        ),
        Probe(
            _of(type="object", patternProperties={"^.*$": _INT}),
            ['{"a":1}', '{"":1}', "{}"],
            ['{"a":"x"}', '{"":null}'],
        ),
    ],
    "patternProperties with a negated class": [
        Probe(
            _of(type="object", patternProperties={"^[^a]$": _INT}, additionalProperties=False),
            ['{"b":1}', '{"\\n":1}'],
            ['{"a":1}', '{"b":"x"}'],
        )
    ],
    "patternProperties with a character that JSON escapes": [
        Probe(
            _of(type="object", patternProperties={'^"$': _INT}, additionalProperties=False),
            ['{"\\"":1}'],
            ['{"a":1}', '{"\\"":"x"}'],
        )
    ],
    "patternProperties that is not portable": [
        Probe(
            _of(type="object", patternProperties={"^(?!a)[ab]$": _INT}, additionalProperties=False),
            ['{"b":1}'],
            ['{"a":1}'],
        )
    ],
    "patternProperties beside other properties": [
        Probe(
            _object({"a": _STR}, patternProperties={"^x[0-9]$": _INT}, additionalProperties=False),
            ['{"a":"s","x1":1}', '{"x1":1}', '{"a":"s"}', "{}"],
            ['{"x1":"s"}', '{"b":1}', '{"a":1}', '{"a":"s","b":1}'],
        ),
        Probe(
            _object({"x1": {"minimum": 3}}, patternProperties={"^x[0-9]$": _INT}, additionalProperties=False),
            ['{"x1":4}', '{"x2":1}'],
            ['{"x1":1}', '{"x1":"s"}', '{"x1":3.5}'],
        ),
        Probe(
            _of(type="object", patternProperties={"^x": _INT}), ['{"a":"s"}', '{"x":1}'], ['{"x":"s"}', '{"xa":null}']
        ),
        Probe(
            _of(type="object", patternProperties={"^x": _INT}, additionalProperties=_STR),
            ['{"a":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":1}'],
        ),
    ],
    "patternProperties beside additionalProperties as a schema": [
        Probe(
            _of(type="object", patternProperties={"^x": _INT}, additionalProperties=_STR),
            ['{"a":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":1}'],
        ),
        Probe(
            _object({"a": _INT}, patternProperties={"^x": _INT}, additionalProperties=_STR),
            ['{"a":1,"b":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":"s"}', '{"\\u0061":"s"}'],
        ),
    ],
    "several patternProperties": [
        Probe(
            _of(type="object", patternProperties={"^x": {"minimum": 2}, "y$": _INT}, additionalProperties=False),
            ['{"xy":3}', '{"xa":2.5}', '{"ay":1}'],
            ['{"xy":1}', '{"xy":2.5}', '{"xa":1}', '{"ay":"s"}', '{"b":1}'],
        ),
        Probe(
            _of(type="object", patternProperties={"^x$": _STR, "^y$": _INT}, additionalProperties=False),
            ['{"x":"s","y":1}', '{"y":1}'],
            ['{"x":1}', '{"y":"s"}', '{"b":1}'],
        ),
    ],
    "propertyNames": [Probe(_of(type="object", propertyNames={"pattern": "^a$"}), ['{"a":1}', "{}"], ['{"b":1}'])],
    "minProperties": [
        Probe(_of(type="object", additionalProperties=_INT, minProperties=1), ['{"a":1}', '{"a":1,"b":2}'], ["{}"]),
        Probe(_of(type="object", minProperties=1), ['{"a":1}'], ["{}"]),
    ],
    "minProperties above 1": [
        Probe(
            _of(type="object", additionalProperties=_INT, minProperties=2),
            ['{"a":1,"b":2}'],
            ["{}", '{"a":1}', '{"a":1,"a":2}'],
        ),
        Probe(
            _object({"a": _INT, "b": _INT, "c": _INT}, minProperties=2, **_CLOSED), ['{"a":1,"c":2}'], ["{}", '{"a":1}']
        ),
    ],
    "maxProperties": [
        Probe(_of(type="object", additionalProperties=_INT, maxProperties=1), ["{}", '{"a":1}'], ['{"a":1,"b":2}'])
    ],
    "minProperties or maxProperties beside named ones": [
        Probe(
            _object({"a": _INT, "b": _INT}, minProperties=1, **_CLOSED), ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'], ["{}"]
        ),
        Probe(_object({"a": _INT, "b": _INT}, maxProperties=1, **_CLOSED), ['{"a":1}', "{}"], ['{"a":1,"b":1}']),
        Probe(_object({"a": _INT}, minProperties=1), ['{"a":1}', '{"c":1}'], ["{}"]),
    ],
    "dependencies": [
        Probe(
            {"$schema": D7, **_object({"a": _INT, "b": _INT}, dependencies={"a": ["b"]})},
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    "dependentRequired": [
        Probe(
            _object({"a": _INT, "b": _INT}, dependentRequired={"a": ["b"]}),
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    "dependentSchemas": [
        Probe(_object({"a": _INT}, dependentSchemas={"a": {"required": ["b"]}}), ["{}", '{"a":1,"b":1}'], ['{"a":1}'])
    ],
    "unevaluatedProperties": [
        Probe(_object({"a": _INT}, unevaluatedProperties=False), ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"b":2}']),
        Probe(
            _of(type="object", allOf=[{"properties": {"a": _INT}}], unevaluatedProperties=False),
            ['{"a":1}'],
            ['{"b":1}'],
        ),
    ],
    "property name that JSON escapes": [
        Probe(
            _object({'a"b': _INT, "c\\d": _INT}, required=['a"b', "c\\d"], **_CLOSED),
            ['{"a\\"b":1,"c\\\\d":2}'],
            ["{}", '{"ab":1,"cd":2}'],
        ),
        Probe(_object({"a\nb": _INT}, required=["a\nb"], **_CLOSED), ['{"a\\nb":1}'], ["{}", '{"a\nb":1}']),
    ],
    # ------------------------------------------------------------------------------------------ combinations
    "anyOf": [
        Probe(_of(anyOf=[_INT, {"type": "string", "maxLength": 1}]), ["1", '"a"'], ['"ab"', "null", "1.5"]),
        Probe(
            _of(
                anyOf=[_object({"a": _INT}, required=["a"], **_CLOSED), _object({"b": _INT}, required=["b"], **_CLOSED)]
            ),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":1}', '{"a":"x"}'],
        ),
        Probe(_of(anyOf=[{"minimum": 3, "type": "number"}, {"type": "integer"}]), ["3.5", "1"], ["1.5", '"a"']),
    ],
    "anyOf with other keywords": [
        Probe(_of(type="string", anyOf=[{"maxLength": 1}, {"minLength": 3}]), ['"a"', '"abc"'], ['"ab"', "1"]),
        Probe(_of(type="integer", minimum=2, anyOf=[{"maximum": 5}, {"minimum": 9}]), ["2", "9"], ["1", "7"]),
        Probe(
            _object({"a": _INT, "b": _INT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}], **_CLOSED),
            ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
            ["{}", '{"c":1}', '{"a":"x"}'],
        ),
    ],
    "oneOf": [
        Probe(_of(oneOf=[_INT, _STR]), ["1", '"a"'], ["null", "1.5"]),
        Probe(_of(oneOf=[{"const": "a"}, {"const": "b"}]), ['"a"', '"b"'], ['"c"']),
        Probe(
            _of(oneOf=[{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]),
            ["2", "6"],
            ["3", "4", "5"],
        ),
        Probe(
            _of(oneOf=[_object({"a": _INT}, required=["a"]), _object({"b": _INT}, required=["b"])]),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":1}'],
        ),
        Probe(
            _of(
                oneOf=[
                    _object({"k": {"const": "x"}, "a": _INT}, required=["k"]),
                    _object({"k": {"const": "y"}}, required=["k"]),
                ]
            ),
            ['{"k":"x"}', '{"k":"y"}', '{"k":"x","a":1}'],
            ["{}", '{"k":"z"}', '{"k":"x","a":"s"}'],
        ),
    ],
    "oneOf with other keywords": [
        Probe(_of(type="string", oneOf=[{"maxLength": 1}, {"minLength": 3}]), ['"a"', '"abc"'], ['"ab"', "1"]),
        Probe(
            _object({"a": _INT, "b": _INT}, oneOf=[{"required": ["a"]}, {"required": ["b"]}], **_CLOSED),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":2}'],
        ),
    ],
    "allOf": [
        Probe(_of(allOf=[{"type": "integer"}, {"minimum": 3}]), ["3", "10"], ["2", '"a"', "3.5"]),
        Probe(
            _of(allOf=[_object({"a": _INT}, required=["a"]), _object({"b": _STR}, required=["b"])]),
            ['{"a":1,"b":"x"}'],
            ['{"a":1}', '{"b":"x"}', "{}", '{"a":"x","b":"x"}'],
        ),
        Probe(_of(allOf=[{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]), ['"b"'], ['"a"', '"c"']),
        Probe(_of(allOf=[_STR]), ['"a"'], ["1"]),
    ],
    "allOf with other keywords": [
        Probe(_of(type="integer", minimum=2, allOf=[{"maximum": 5}]), ["2", "5"], ["1", "6", '"a"']),
        Probe(
            _object({"a": _INT}, required=["a"], allOf=[{"required": ["b"]}, {"properties": {"b": _STR}}]),
            ['{"a":1,"b":"x"}'],
            ['{"a":1}', '{"a":1,"b":2}', "{}"],
        ),
    ],
    "not": [
        Probe({"not": _STR}, ["1", "null", "[]"], ['"a"']),
        Probe(
            _of(anyOf=[{"not": {"type": ["string", "number", "object"]}}]), ["null", "[]", "true"], ['"a"', "1", "{}"]
        ),
    ],
    "not with other keywords": [
        Probe({"type": "integer", "not": {"const": 3}}, ["4", "33"], ["3", '"a"']),
        Probe({"type": "string", "not": {"enum": ["a"]}}, ['"b"', '"aa"'], ['"a"', "1"]),
    ],
    "if": [
        Probe(
            {"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "string"}}, ["3", '"a"'], ["2", "null"]
        )
    ],
    "if with other keywords": [
        Probe(
            {**_object({"a": _INT, "b": _INT}), "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    # -------------------------------------------------------------------------------------------- references
    "$ref": [
        Probe(
            _object({"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": _INT}}, **_CLOSED),
            ['{"a":1,"b":2}', "{}"],
            ['{"a":"x"}'],
        ),
        Probe(
            {
                "$schema": D7,
                **_object({"a": {"$ref": "#/definitions/x~1y"}}, definitions={"x/y": {"enum": ["v"]}}, **_CLOSED),
            },
            ['{"a":"v"}'],
            ['{"a":"x"}', '{"a":1}'],
        ),
        Probe({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/y"}, "y": _INT}}, ["1"], ['"a"']),
    ],
    "$ref (recursive)": [
        Probe(
            {
                "$ref": "#/$defs/t",
                "$defs": {"t": _object({"v": _INT, "next": {"$ref": "#/$defs/t"}}, required=["v"], **_CLOSED)},
            },
            ['{"v":1}', '{"v":1,"next":{"v":2}}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'],
            ["{}", '{"v":1,"next":{}}', '{"v":1,"next":{"v":2,"next":{"v":"x"}}}'],
        ),
        Probe(
            _object({"kids": {"type": "array", "items": {"$ref": "#"}}}, **_CLOSED),
            ["{}", '{"kids":[{},{"kids":[]}]}'],
            ['{"kids":[1]}', '{"kids":[{"a":1}]}'],
        ),
    ],
    "$ref with other keywords": [
        Probe({"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": _INT}}, ["3", "10"], ["2", '"a"']),
        Probe(
            _object({"a": {"$ref": "#/$defs/x", "required": ["c"]}}, **{"$defs": {"x": _object({"b": _INT})}}),
            ['{"a":{"c":1}}', '{"a":{"b":1,"c":1}}', "{}"],
            ['{"a":{"b":1}}', '{"a":{"b":"x","c":1}}'],
        ),
    ],
    "$ref with keywords that its dialect ignores": [
        Probe(
            {"$schema": D7, "definitions": {"x": _INT}, "$ref": "#/definitions/x", "type": "integer"}, ["3"], ['"a"']
        ),
        Probe(
            {"$schema": D7, "definitions": {"x": _INT}, "$ref": "#/definitions/x", "minimum": 3}, ["1", "3"], ['"a"']
        ),
    ],
    "$ref into an annotation": [Probe({"$ref": "#/components/x", "components": {"x": _INT}}, ["1"], ['"a"', "null"])],
    "keyword beyond the dialect of $schema": [
        Probe({"$schema": D4, "type": "string", "const": "a"}, ['"a"', '"b"'], ["1"]),
    ],
}
"""Each feature of specinfer.structured.audit with its probes; what is not here is not known to be exact anywhere"""
