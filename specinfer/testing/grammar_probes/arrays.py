"""What do probes of an array's keywords say?"""

from specinfer.testing.grammar_probes.probe import D7, INT, STR, Probe, of

ARRAYS: dict[str, list[Probe]] = {
    "items": [
        Probe(of(type="array", items={"enum": ["a", "b"]}), ["[]", '["a","b"]'], ['["c"]', "[1]", '["a",1]']),
        Probe(of(type="array", items={"type": "array", "items": INT}), ["[[1],[]]"], ["[1]", '[["a"]]']),
    ],
    "items: false": [Probe(of(type="array", items=False), ["[]"], ["[1]"])],
    "items as a list": [
        Probe(
            {"$schema": D7, "type": "array", "items": [INT, STR]},
            ['[1,"a"]', "[1]", "[]", '[1,"a",null]'],
            ['["a"]', "[1,2]"],
        )
    ],
    "additionalItems": [
        Probe(
            {"$schema": D7, "type": "array", "items": [INT], "additionalItems": False},
            ["[1]", "[]"],
            ['["a"]', "[1,2]"],
        ),
        Probe({"$schema": D7, "type": "array", "items": [INT], "additionalItems": STR}, ['[1,"a"]', "[1]"], ["[1,2]"]),
    ],
    "array of any items": [Probe(of(type="array"), ["[]", '[1,"a",{},[null]]'], ["{}", "[1,", "1"])],
    "prefixItems": [
        Probe(of(type="array", prefixItems=[INT, STR]), ['[1,"a"]', "[1]", "[]", '[1,"a",null]'], ['["a"]', "[1,2]"]),
        Probe(of(type="array", prefixItems=[INT], items=False), ["[1]", "[]"], ['["a"]', "[1,2]"]),
        Probe(of(type="array", prefixItems=[INT], items=STR), ['[1,"a"]', "[1]"], ["[1,2]"]),
    ],
    "a tuple with minItems or maxItems": [
        Probe(of(type="array", prefixItems=[INT, STR], items=False, minItems=2), ['[1,"a"]'], ["[1]", "[]"]),
        Probe(of(type="array", prefixItems=[INT, STR], maxItems=2), ['[1,"a"]', "[1]", "[]"], ['[1,"a",2]']),
        Probe(of(type="array", prefixItems=[INT], minItems=2, maxItems=3), ["[1,2]", "[1,2,3]"], ["[1]", "[1,2,3,4]"]),
    ],
    "minItems": [Probe(of(type="array", items=INT, minItems=2), ["[1,2]", "[1,2,3]"], ["[]", "[1]"])],
    "maxItems": [
        Probe(of(type="array", items=INT, maxItems=2), ["[]", "[1,2]"], ["[1,2,3]"]),
        Probe(of(type="array", items=INT, minItems=1, maxItems=1), ["[1]"], ["[]", "[1,2]"]),
        Probe(of(type="array", maxItems=0), ["[]"], ["[1]"]),
    ],
    "uniqueItems": [Probe(of(type="array", items=INT, uniqueItems=True), ["[1,2]", "[]"], ["[1,1]", "[1,2,1]"])],
    "contains": [Probe(of(type="array", contains=INT), ["[1]", '["a",1]'], ["[]", '["a"]'])],
    "minContains": [Probe(of(type="array", contains=INT, minContains=2), ["[1,2]"], ["[1]"])],
    "maxContains": [Probe(of(type="array", contains=INT, maxContains=1), ["[1]"], ["[1,2]"])],
    "unevaluatedItems": [Probe(of(type="array", prefixItems=[INT], unevaluatedItems=False), ["[1]"], ["[1,2]"])],
}
