"""What do probes of types and of fixed values say?"""

from specinfer.testing.grammar_probes.probe import CLOSED, INT, STR, Probe, object_with, of

VALUES: dict[str, list[Probe]] = {
    # ------------------------------------------------------------------------------------------------ types
    "type string": [Probe(STR, ['""', '"a"', '"é😀"', '"\\n\\"\\\\"'], ["1", "null", "a", '"', '"a', '"\n"', '"\\x"'])],
    "type integer": [Probe(INT, ["0", "-1", "120", "9007199254740993"], ["1.5", "01", "--1", '"1"', "null", "-", ""])],
    "type number": [
        Probe(of(type="number"), ["0", "-1", "1.5", "-0.25", "1e3", "2.5E-3"], [".5", "1.", "01", "1e", '"1"', "NaN"])
    ],
    "type boolean": [Probe(of(type="boolean"), ["true", "false"], ["1", "True", '"true"', "null", "tru"])],
    "type null": [Probe(of(type="null"), ["null"], ["0", '"null"', "Null", ""])],
    "type array": [Probe(of(type="array", items=INT), ["[]", "[1]", "[1,2,3]"], ["{}", "[1,]", "[", "1", '["a"]'])],
    "type object": [
        Probe(object_with({"a": INT}, **CLOSED), ["{}", '{"a":1}'], ["[]", '{"a":1,}', "{", '{"a"}', '{"a":1,"a":2.5}'])
    ],
    "type list": [
        Probe(of(type=["string", "null"]), ['"a"', "null"], ["1", "true", "[]", "{}"]),
        Probe(of(type=["integer", "boolean"], minimum=3), ["3", "true"], ["2", '"a"', "null"]),
        Probe(of(type=["string", "integer"], maxLength=1, maximum=5), ['"a"', "5"], ['"ab"', "6", "null"]),
        Probe(
            of(type=["array", "object"], items=INT, properties={"a": STR}, additionalProperties=False),
            ["[1]", '{"a":"x"}', "{}"],
            ['["a"]', '{"a":1}', '{"b":1}', "1"],
        ),
    ],
    "any value": [
        Probe({}, ["1", "null", '"a"', "[1,[]]", '{"a":{"b":[]}}', "true", "-1.5e3"], ["", "[", "a", "{1:2}"]),
        Probe(object_with({"a": {}}, required=["a"], **CLOSED), ['{"a":1}', '{"a":[null]}'], ['{"a":}', "{}"]),
    ],
    "false schema": [
        Probe(object_with({"a": False, "b": INT}, **CLOSED), ["{}", '{"b":1}'], ['{"a":1}', '{"a":null,"b":1}']),
        Probe(object_with({"a": False}), ["{}", '{"b":1}'], ['{"a":1}', '{"a":null}']),
        Probe(of(anyOf=[False, INT]), ["1"], ['"a"', "null"]),
    ],
    "keyword of another type": [
        Probe(of(type="string", minimum=3), ['""', '"1"'], ["1", "5"]),
        Probe(of(type="integer", maxLength=1), ["1", "100"], ['"a"']),
        Probe(of(type="object", items=INT), ["{}", '{"a":"x"}'], ["[1]"]),
        Probe(of(type="array", properties={"a": INT}, required=["a"]), ["[]", '["a"]'], ["{}", '{"a":1}']),
        Probe(of(type="boolean", pattern="^a$"), ["true"], ['"a"']),
    ],
    "string keywords without type": [
        Probe(of(minLength=2), ['"ab"', "1", "null", "[]", '{"a":1}', "true"], ['"a"']),
        Probe(of(pattern="^a$"), ['"a"', "1", "[]"], ['"b"']),
    ],
    "number keywords without type": [Probe(of(minimum=2), ["2", "2.5", '"a"', "null", "[]", '{"a":1}'], ["1", "-3"])],
    "array keywords without type": [
        Probe(of(items=INT), ["[1]", "[]", '"a"', "1", '{"a":1}', "null"], ['["a"]']),
        Probe(of(minItems=1), ["[1]", '"a"', "{}"], ["[]"]),
    ],
    "object keywords without type": [
        Probe(of(properties={"a": INT}), ['{"a":1}', "{}", '{"b":"x"}', '"a"', "1", "[1]", "null"], ['{"a":"x"}']),
        Probe(of(properties={"a": INT}, required=["a"]), ['{"a":1}', '"a"', "1", "[]"], ["{}", '{"a":"x"}']),
        Probe(of(additionalProperties=INT), ['{"a":1}', "{}", "[]"], ['{"a":"x"}']),
    ],
    # ------------------------------------------------------------------------------------------- fixed values
    "enum": [
        Probe(of(enum=["a", "b c", None, True]), ['"a"', '"b c"', "null", "true"], ['"b"', "false", "1", '""', '"a']),
        Probe(of(enum=["é😀", 'q"\\', "a/b"]), ['"é😀"', '"q\\"\\\\"', '"a/b"'], ['"q"', '"a"']),
        Probe(of(type="string", enum=["a", "ab"]), ['"a"', '"ab"'], ['"b"', '"abc"', "null"]),
    ],
    "enum of numbers": [
        Probe(of(enum=[1, -2, 2.5, 100]), ["1", "-2", "2.5", "100"], ["2", "10", "-1", "1.5", '"1"']),
        Probe(of(type="integer", enum=[1, 12]), ["1", "12"], ["2", "123"]),
    ],
    "enum of objects or arrays": [
        Probe(of(enum=[[1, "a"], {"b": None}, []]), ['[1,"a"]', '{"b":null}', "[]"], ["[1]", "{}", '{"b":1}'])
    ],
    "enum beyond type": [
        Probe(of(type="string", enum=["a", 1, None]), ['"a"'], ["1", "null"]),
        Probe(of(type=["integer", "null"], enum=["a", 1, None]), ["1", "null"], ['"a"']),
    ],
    "enum with other keywords": [
        Probe(of(type="string", enum=["a", "ab", "abc"], maxLength=2), ['"a"', '"ab"'], ['"abc"']),
        Probe(of(type="integer", enum=[1, 5, 9], minimum=4), ["5", "9"], ["1"]),
        Probe(of(enum=["a", "b"], pattern="^a$"), ['"a"'], ['"b"']),
        Probe(of(enum=["a", "b"], anyOf=[{"const": "a"}]), ['"a"'], ['"b"']),
    ],
    "const": [
        Probe(of(const="a b"), ['"a b"'], ['"a"', "1", "null"]),
        Probe(of(const=None), ["null"], ['"null"', "0"]),
        Probe(of(type="string", const="é"), ['"é"'], ['"e"']),
    ],
    "const of numbers": [
        Probe(of(const=12), ["12"], ["1", "123", '"12"']),
        Probe(of(const=2.5), ["2.5"], ["2", "2.6"]),
    ],
    "const of objects or arrays": [
        Probe(of(const={"a": [1, None]}), ['{"a":[1,null]}'], ["{}", '{"a":[1]}']),
        Probe(of(const=[]), ["[]"], ["[1]"]),
    ],
    "const beyond type": [Probe(of(anyOf=[{"type": "integer", "const": "a"}, {"const": "b"}]), ['"b"'], ['"a"', "1"])],
    "const with other keywords": [
        Probe(of(anyOf=[{"const": "abc", "maxLength": 2}, {"const": "b"}]), ['"b"'], ['"abc"']),
        Probe(of(const="a", minLength=1), ['"a"'], ['""']),
    ],
}
