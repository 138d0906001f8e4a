"""What do probes of an object's keywords say?"""

from specinfer.testing.grammar_probes.probe import CLOSED, D7, INT, STR, Probe, object_with, of

OBJECTS: dict[str, list[Probe]] = {
    "properties": [
        Probe(
            object_with(
                {"a": INT, "b": object_with({"c": STR}, required=["c"], **CLOSED)}, required=["a", "b"], **CLOSED
            ),
            ['{"a":1,"b":{"c":"x"}}'],
            ['{"a":1}', '{"a":1,"b":{}}', '{"a":"x","b":{"c":"x"}}', '{"a":1,"b":{"c":1}}'],
        )
    ],
    "required": [
        Probe(
            object_with({"a": INT, "b": INT}, required=["b"], **CLOSED), ['{"b":1}', '{"a":1,"b":2}'], ["{}", '{"a":1}']
        ),
        Probe(object_with({"a": INT, "b": INT}, required=["a"]), ['{"a":1}', '{"a":1,"b":2}'], ["{}", '{"b":1}']),
    ],
    "required names beyond properties": [
        Probe(object_with({"a": INT}, required=["a", "x"]), ['{"a":1,"x":2}', '{"a":1,"x":null}'], ['{"a":1}', "{}"]),
        Probe(of(type="object", required=["x"]), ['{"x":1}', '{"x":"a"}'], ["{}", '{"y":1}']),
        Probe(of(type="object", required=["x"], additionalProperties=INT), ['{"x":1}'], ["{}", '{"x":"a"}']),
    ],
    "optional properties": [
        Probe(
            object_with({"a": INT, "b": INT, "c": INT}, **CLOSED),
            ["{}", '{"a":1}', '{"b":1}', '{"c":1}', '{"a":1,"c":1}', '{"b":1,"c":2}', '{"a":1,"b":2,"c":3}'],
            ['{"d":1}', '{"a":1,"a":"x"}', '{,"a":1}', '{"a":1,,"b":1}'],
        ),
        Probe(
            object_with({"a": INT, "b": INT}, required=["b"]), ['{"b":1}', '{"a":1,"b":1}'], ['{"a":1}', '{"b":"x"}']
        ),
    ],
    "additionalProperties: false": [
        Probe(object_with({"a": INT}, **CLOSED), ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"b":1}', '{"":1}']),
        Probe(of(type="object", additionalProperties=False), ["{}"], ['{"a":1}']),
    ],
    "additionalProperties as a schema": [
        Probe(
            of(type="object", additionalProperties=INT),
            ["{}", '{"a":1,"b":2}', '{"":1}'],
            ['{"a":"x"}', '{"a":1,"b":null}'],
        ),
        Probe(
            object_with({"a": STR}, additionalProperties=INT),
            ['{"a":"x","b":2}', '{"b":1}', "{}", '{"ab":1}'],
            ['{"b":"x"}', '{"a":1}', '{"a":"x","a":1}', '{"b":1,"a":1}', '{"\\u0061":1}'],
        ),
    ],
    "additional properties": [
        Probe(
            object_with({"a": INT}),
            ["{}", '{"a":1}', '{"b":"x"}', '{"a":1,"b":null,"c":[]}', '{"ab":"x"}', '{"":"x"}'],
            ['{"a":"x"}', '{"a":1,"a":"x"}', '{"b":1,"a":"x"}', '{"a":1,}'],
        ),
        Probe(
            object_with({"a": INT}, required=["a"]),
            ['{"a":1,"b":2}'],
            ['{"a":1,"a":"x"}', '{"b":1,"a":"x"}', '{"b":1}'],
        ),
        Probe(object_with({"a": INT}, additionalProperties=True), ['{"a":1,"b":2}'], ['{"a":"x"}', '{"b":2,"a":"x"}']),
        Probe(object_with({"a": INT}), ['{"\\n":"x"}'], ['{"\\u0061":"x"}']),
        Probe(
            object_with({"a": INT}, patternProperties={"^x": INT}),
            ['{"xa":1,"b":"x"}'],
            ['{"\\u0061":"x"}', '{"xa":"x"}'],
        ),
    ],
    "patternProperties": [
        Probe(
            of(type="object", patternProperties={"^a[0-9]$": INT}, additionalProperties=False),
            ["{}", '{"a1":1}', '{"a1":1,"a2":2}'],
            ['{"a1":"x"}', '{"b":1}', '{"a":1}', '{"a12":1}'],
        ),
        Probe(
            of(type="object", patternProperties={"^[a-z]+$": STR}, additionalProperties=False),
            ['{"ab":"x"}'],
            ['{"ab":1}', '{"1":"x"}', '{"":"x"}'],
        ),
    ],
    "patternProperties with an open end": [
        Probe(
            of(type="object", patternProperties={"^x-": INT}, additionalProperties=False),
            ['{"x-a":1}', '{"x-":1}'],
            ['{"x-a":"b"}', '{"a":1}', '{"ax-":1}'],
        ),
        Probe(
            of(type="object", patternProperties={"b": INT}, additionalProperties=False),
            ['{"b":1}', '{"abc":1}'],
            ['{"b":"x"}', '{"a":1}'],
        ),
    ],
    "patternProperties with a class escape": [
        Probe(
            of(type="object", patternProperties={"^\\d+$": INT}, additionalProperties=False),
            ['{"12":1}'],
            ['{"12":"x"}', '{"a":1}', '{"٣":1}'],
        )
    ],
    "patternProperties with any character": [
        Probe(
            of(type="object", patternProperties={"^.$": INT}, additionalProperties=False),
            ['{"a":1}', '{"é":1}', '{"\\"":1}'],
            ['{"a":"x"}', '{"ab":1}', '{"\\n":1}'],
        ),
        Probe(
            of(type="object", patternProperties={"^.*$": INT}),
            ['{"a":1}', '{"":1}', "{}"],
            ['{"a":"x"}', '{"":null}'],
        ),
    ],
    "patternProperties with a negated class": [
        Probe(
            of(type="object", patternProperties={"^[^a]$": INT}, additionalProperties=False),
            ['{"b":1}', '{"\\n":1}'],
            ['{"a":1}', '{"b":"x"}'],
        )
    ],
    "patternProperties with a character that JSON escapes": [
        Probe(
            of(type="object", patternProperties={'^"$': INT}, additionalProperties=False),
            ['{"\\"":1}'],
            ['{"a":1}', '{"\\"":"x"}'],
        )
    ],
    "patternProperties that is not portable": [
        Probe(
            of(type="object", patternProperties={"^(?!a)[ab]$": INT}, additionalProperties=False),
            ['{"b":1}'],
            ['{"a":1}'],
        )
    ],
    "patternProperties beside other properties": [
        Probe(
            object_with({"a": STR}, patternProperties={"^x[0-9]$": INT}, additionalProperties=False),
            ['{"a":"s","x1":1}', '{"x1":1}', '{"a":"s"}', "{}"],
            ['{"x1":"s"}', '{"b":1}', '{"a":1}', '{"a":"s","b":1}'],
        ),
        Probe(
            object_with({"x1": {"minimum": 3}}, patternProperties={"^x[0-9]$": INT}, additionalProperties=False),
            ['{"x1":4}', '{"x2":1}'],
            ['{"x1":1}', '{"x1":"s"}', '{"x1":3.5}'],
        ),
        Probe(of(type="object", patternProperties={"^x": INT}), ['{"a":"s"}', '{"x":1}'], ['{"x":"s"}', '{"xa":null}']),
        Probe(
            of(type="object", patternProperties={"^x": INT}, additionalProperties=STR),
            ['{"a":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":1}'],
        ),
    ],
    "patternProperties beside additionalProperties as a schema": [
        Probe(
            of(type="object", patternProperties={"^x": INT}, additionalProperties=STR),
            ['{"a":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":1}'],
        ),
        Probe(
            object_with({"a": INT}, patternProperties={"^x": INT}, additionalProperties=STR),
            ['{"a":1,"b":"s"}', '{"x":1}'],
            ['{"x":"s"}', '{"a":"s"}', '{"\\u0061":"s"}'],
        ),
    ],
    "several patternProperties": [
        Probe(
            of(type="object", patternProperties={"^x": {"minimum": 2}, "y$": INT}, additionalProperties=False),
            ['{"xy":3}', '{"xa":2.5}', '{"ay":1}'],
            ['{"xy":1}', '{"xy":2.5}', '{"xa":1}', '{"ay":"s"}', '{"b":1}'],
        ),
        Probe(
            of(type="object", patternProperties={"^x$": STR, "^y$": INT}, additionalProperties=False),
            ['{"x":"s","y":1}', '{"y":1}'],
            ['{"x":1}', '{"y":"s"}', '{"b":1}'],
        ),
    ],
    "propertyNames": [Probe(of(type="object", propertyNames={"pattern": "^a$"}), ['{"a":1}', "{}"], ['{"b":1}'])],
    "minProperties": [
        Probe(of(type="object", additionalProperties=INT, minProperties=1), ['{"a":1}', '{"a":1,"b":2}'], ["{}"]),
        Probe(of(type="object", minProperties=1), ['{"a":1}'], ["{}"]),
    ],
    "minProperties above 1": [
        Probe(
            of(type="object", additionalProperties=INT, minProperties=2),
            ['{"a":1,"b":2}'],
            ["{}", '{"a":1}', '{"a":1,"a":2}'],
        ),
        Probe(
            object_with({"a": INT, "b": INT, "c": INT}, minProperties=2, **CLOSED), ['{"a":1,"c":2}'], ["{}", '{"a":1}']
        ),
    ],
    "maxProperties": [
        Probe(of(type="object", additionalProperties=INT, maxProperties=1), ["{}", '{"a":1}'], ['{"a":1,"b":2}'])
    ],
    "minProperties or maxProperties beside named ones": [
        Probe(
            object_with({"a": INT, "b": INT}, minProperties=1, **CLOSED),
            ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
            ["{}"],
        ),
        Probe(object_with({"a": INT, "b": INT}, maxProperties=1, **CLOSED), ['{"a":1}', "{}"], ['{"a":1,"b":1}']),
        Probe(object_with({"a": INT}, minProperties=1), ['{"a":1}', '{"c":1}'], ["{}"]),
    ],
    "dependencies": [
        Probe(
            {"$schema": D7, **object_with({"a": INT, "b": INT}, dependencies={"a": ["b"]})},
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    "dependentRequired": [
        Probe(
            object_with({"a": INT, "b": INT}, dependentRequired={"a": ["b"]}),
            ["{}", '{"b":1}', '{"a":1,"b":1}'],
            ['{"a":1}'],
        )
    ],
    "dependentSchemas": [
        Probe(
            object_with({"a": INT}, dependentSchemas={"a": {"required": ["b"]}}), ["{}", '{"a":1,"b":1}'], ['{"a":1}']
        )
    ],
    "unevaluatedProperties": [
        Probe(object_with({"a": INT}, unevaluatedProperties=False), ["{}", '{"a":1}'], ['{"b":1}', '{"a":1,"b":2}']),
        Probe(
            of(type="object", allOf=[{"properties": {"a": INT}}], unevaluatedProperties=False),
            ['{"a":1}'],
            ['{"b":1}'],
        ),
    ],
    "property name that JSON escapes": [
        Probe(
            object_with({'a"b': INT, "c\\d": INT}, required=['a"b', "c\\d"], **CLOSED),
            ['{"a\\"b":1,"c\\\\d":2}'],
            ["{}", '{"ab":1,"cd":2}'],
        ),
        Probe(object_with({"a\nb": INT}, required=["a\nb"], **CLOSED), ['{"a\\nb":1}'], ["{}", '{"a\nb":1}']),
    ],
}
