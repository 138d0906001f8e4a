"""What do probes of combined schemas and of references say?"""

from specinfer.testing.grammar_probes.probe import CLOSED, D4, D7, INT, STR, Probe, object_with, of

COMBINATIONS: dict[str, list[Probe]] = {
    # ------------------------------------------------------------------------------------------ combinations
    "anyOf": [
        Probe(of(anyOf=[INT, {"type": "string", "maxLength": 1}]), ["1", '"a"'], ['"ab"', "null", "1.5"]),
        Probe(
            of(
                anyOf=[
                    object_with({"a": INT}, required=["a"], **CLOSED),
                    object_with({"b": INT}, required=["b"], **CLOSED),
                ]
            ),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":1}', '{"a":"x"}'],
        ),
        Probe(of(anyOf=[{"minimum": 3, "type": "number"}, {"type": "integer"}]), ["3.5", "1"], ["1.5", '"a"']),
    ],
    "anyOf with other keywords": [
        Probe(of(type="string", anyOf=[{"maxLength": 1}, {"minLength": 3}]), ['"a"', '"abc"'], ['"ab"', "1"]),
        Probe(of(type="integer", minimum=2, anyOf=[{"maximum": 5}, {"minimum": 9}]), ["2", "9"], ["1", "7"]),
        Probe(
            object_with({"a": INT, "b": INT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}], **CLOSED),
            ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'],
            ["{}", '{"c":1}', '{"a":"x"}'],
        ),
    ],
    "oneOf": [
        Probe(of(oneOf=[INT, STR]), ["1", '"a"'], ["null", "1.5"]),
        Probe(of(oneOf=[{"const": "a"}, {"const": "b"}]), ['"a"', '"b"'], ['"c"']),
        Probe(
            of(oneOf=[{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]),
            ["2", "6"],
            ["3", "4", "5"],
        ),
        Probe(
            of(oneOf=[object_with({"a": INT}, required=["a"]), object_with({"b": INT}, required=["b"])]),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":1}'],
        ),
        Probe(
            of(
                oneOf=[
                    object_with({"k": {"const": "x"}, "a": INT}, required=["k"]),
                    object_with({"k": {"const": "y"}}, required=["k"]),
                ]
            ),
            ['{"k":"x"}', '{"k":"y"}', '{"k":"x","a":1}'],
            ["{}", '{"k":"z"}', '{"k":"x","a":"s"}'],
        ),
    ],
    "oneOf with other keywords": [
        Probe(of(type="string", oneOf=[{"maxLength": 1}, {"minLength": 3}]), ['"a"', '"abc"'], ['"ab"', "1"]),
        Probe(
            object_with({"a": INT, "b": INT}, oneOf=[{"required": ["a"]}, {"required": ["b"]}], **CLOSED),
            ['{"a":1}', '{"b":1}'],
            ["{}", '{"a":1,"b":2}'],
        ),
    ],
    "allOf": [
        Probe(of(allOf=[{"type": "integer"}, {"minimum": 3}]), ["3", "10"], ["2", '"a"', "3.5"]),
        Probe(
            of(allOf=[object_with({"a": INT}, required=["a"]), object_with({"b": STR}, required=["b"])]),
            ['{"a":1,"b":"x"}'],
            ['{"a":1}', '{"b":"x"}', "{}", '{"a":"x","b":"x"}'],
        ),
        Probe(of(allOf=[{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]), ['"b"'], ['"a"', '"c"']),
        Probe(of(allOf=[STR]), ['"a"'], ["1"]),
    ],
    "allOf with other keywords": [
        Probe(of(type="integer", minimum=2, allOf=[{"maximum": 5}]), ["2", "5"], ["1", "6", '"a"']),
        Probe(
            object_with({"a": INT}, required=["a"], allOf=[{"required": ["b"]}, {"properties": {"b": STR}}]),
            ['{"a":1,"b":"x"}'],
            ['{"a":1}', '{"a":1,"b":2}', "{}"],
        ),
    ],
    "not": [
        Probe({"not": STR}, ["1", "null", "[]"], ['"a"']),
        Probe(
            of(anyOf=[{"not": {"type": ["string", "number", "object"]}}]), ["null", "[]", "true"], ['"a"', "1", "{}"]
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
            {**object_with({"a": INT, "b": INT}), "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    # -------------------------------------------------------------------------------------------- references
    "$ref": [
        Probe(
            object_with({"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": INT}}, **CLOSED),
            ['{"a":1,"b":2}', "{}"],
            ['{"a":"x"}'],
        ),
        Probe(
            {
                "$schema": D7,
                **object_with({"a": {"$ref": "#/definitions/x~1y"}}, definitions={"x/y": {"enum": ["v"]}}, **CLOSED),
            },
            ['{"a":"v"}'],
            ['{"a":"x"}', '{"a":1}'],
        ),
        Probe({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/y"}, "y": INT}}, ["1"], ['"a"']),
    ],
    "$ref (recursive)": [
        Probe(
            {
                "$ref": "#/$defs/t",
                "$defs": {"t": object_with({"v": INT, "next": {"$ref": "#/$defs/t"}}, required=["v"], **CLOSED)},
            },
            ['{"v":1}', '{"v":1,"next":{"v":2}}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'],
            ["{}", '{"v":1,"next":{}}', '{"v":1,"next":{"v":2,"next":{"v":"x"}}}'],
        ),
        Probe(
            object_with({"kids": {"type": "array", "items": {"$ref": "#"}}}, **CLOSED),
            ["{}", '{"kids":[{},{"kids":[]}]}'],
            ['{"kids":[1]}', '{"kids":[{"a":1}]}'],
        ),
    ],
    "$ref with other keywords": [
        Probe({"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": INT}}, ["3", "10"], ["2", '"a"']),
        Probe(
            object_with({"a": {"$ref": "#/$defs/x", "required": ["c"]}}, **{"$defs": {"x": object_with({"b": INT})}}),
            ['{"a":{"c":1}}', '{"a":{"b":1,"c":1}}', "{}"],
            ['{"a":{"b":1}}', '{"a":{"b":"x","c":1}}'],
        ),
    ],
    "$ref with keywords that its dialect ignores": [
        Probe({"$schema": D7, "definitions": {"x": INT}, "$ref": "#/definitions/x", "type": "integer"}, ["3"], ['"a"']),
        Probe({"$schema": D7, "definitions": {"x": INT}, "$ref": "#/definitions/x", "minimum": 3}, ["1", "3"], ['"a"']),
    ],
    "$ref into an annotation": [Probe({"$ref": "#/components/x", "components": {"x": INT}}, ["1"], ['"a"', "null"])],
    "keyword beyond the dialect of $schema": [
        Probe({"$schema": D4, "type": "string", "const": "a"}, ['"a"', '"b"'], ["1"]),
    ],
}
