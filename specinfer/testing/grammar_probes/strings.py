"""What do probes of a string's keywords say?"""

from specinfer.testing.grammar_probes.probe import Probe, of

STRINGS: dict[str, list[Probe]] = {
    "minLength": [
        Probe(of(type="string", minLength=2), ['"ab"', '"é😀"', '"\\n\\t"', '"abcdef"'], ['""', '"a"', '"😀"', '"\\n"'])
    ],
    "maxLength": [
        Probe(
            of(type="string", maxLength=2), ['""', '"ab"', '"é😀"', '"\\n\\t"'], ['"abc"', '"😀😀😀"', '"\\n\\n\\n"']
        ),
        Probe(of(type="string", minLength=1, maxLength=1), ['"a"', '"😀"', '"\\""'], ['""', '"ab"']),
        Probe(of(type="string", maxLength=0), ['""'], ['"a"']),
    ],
    "pattern": [
        Probe(of(type="string", pattern="^a+$"), ['"a"', '"aaa"'], ['""', '"b"', '"ab"', "1"]),
        Probe(
            of(type="string", pattern="^(ab|c){1,2}[x-z0-9]?$"), ['"ab"', '"cabz"', '"c9"'], ['"a"', '"ccc"', '"abw"']
        ),
        Probe(of(type="string", pattern="^(a|b)$"), ['"a"', '"b"'], ['"ab"', '"xa"']),
        Probe(of(type="string", pattern="^[a-zà-ÿ]{2}-\\.$"), ['"éa-."'], ['"ea-a"', '"e-."']),
    ],
    "pattern with an open end": [
        Probe(of(type="string", pattern="a"), ['"a"', '"bab"', '"ax"'], ['""', '"b"']),
        Probe(of(type="string", pattern="^a"), ['"a"', '"ab"', '"a\\n😀"'], ['"ba"', '""']),
        Probe(of(type="string", pattern="a$"), ['"a"', '"ba"'], ['"ab"', '""']),
        Probe(of(type="string", pattern="^a|b$"), ['"a"', '"b"', '"ax"', '"xb"'], ['"xa"', '"bx"']),
        Probe(of(type="string", pattern=""), ['""', '"x"'], ["1"]),
    ],
    "pattern with a class escape": [
        Probe(of(type="string", pattern="^\\d+$"), ['"09"'], ['"a"', '"٣"', '"²"']),
        Probe(of(type="string", pattern="^\\w$"), ['"a"', '"_"', '"7"'], ['"é"', '"-"', '"ß"']),
        Probe(of(type="string", pattern="^[\\d.]+$"), ['"1.2"'], ['"a"', '"٣"']),
        Probe(of(type="string", pattern="^a\\sb$"), ['"a b"', '"a\\tb"'], ['"ab"', '"a-b"']),
    ],
    "pattern with any character": [
        Probe(
            of(type="string", pattern="^a.b$"), ['"axb"', '"a😀b"', '"a\\"b"', '"a b"'], ['"ab"', '"a\\nb"', '"axxb"']
        )
    ],
    "pattern with a negated class": [
        Probe(of(type="string", pattern="^[^a]$"), ['"b"', '"é"', '"\\n"', '"\\""', '"\\\\"'], ['"a"', '""', '"bb"']),
        Probe(of(type="string", pattern="^\\S$"), ['"b"', '"é"', '"\\""'], ['" "', '"\\n"']),
    ],
    "pattern with a character that JSON escapes": [
        Probe(of(type="string", pattern='^a"b$'), ['"a\\"b"'], ['"ab"', '"a"b"']),
        Probe(of(type="string", pattern="^a\\\\b$"), ['"a\\\\b"'], ['"ab"', '"a\\b"']),
        Probe(of(type="string", pattern="^a\\nb$"), ['"a\\nb"'], ['"anb"', '"a\nb"']),
    ],
    "pattern that is not portable": [
        Probe(of(type="string", pattern="^(?!a)[ab]$"), ['"b"'], ['"a"']),
        Probe(of(type="string", pattern="^(a|b)\\1$"), ['"aa"', '"bb"'], ['"ab"']),
    ],
    "pattern with minLength or maxLength": [
        Probe(of(type="string", pattern="^a+$", maxLength=3), ['"a"', '"aaa"'], ['""', '"b"', '"aaaa"', '"ab"']),
        Probe(of(type="string", pattern="^[ab]*$", minLength=2), ['"ab"', '"aba"'], ['""', '"a"', '"ac"']),
        Probe(of(type="string", pattern="b", maxLength=2), ['"b"', '"ab"'], ['"a"', '"aab"']),
    ],
    "unknown format": [Probe(of(type="string", format="ports"), ['""', '"a"', '"80:80"'], ["1", "null"])],
    "format with pattern, minLength or maxLength": [
        Probe(of(type="string", format="date", pattern="^2"), ['"2024-01-31"'], ['"1999-01-31"', '"2"']),
        Probe(of(type="string", format="email", maxLength=7), ['"a@b.com"'], ['"abc@b.com"', '"abc"']),
    ],
    "format date": [
        Probe(
            of(type="string", format="date"),
            ['"2024-02-28"', '"1999-12-31"'],
            ['"2024-13-01"', '"2024-01-32"', '"24-1-1"', '""', '"a"'],
        )
    ],
    "format date-time": [
        Probe(
            of(type="string", format="date-time"),
            ['"2024-02-28T01:02:03Z"', '"1999-12-31T23:59:59.123+01:00"'],
            ['"2024-02-28"', '"2024-02-28T25:00:00Z"', '"2024-02-28T01:02:03"', '""', '"a"'],
        )
    ],
    "format time": [
        Probe(of(type="string", format="time"), ['"01:02:03Z"', '"23:59:59+02:00"'], ['"24:00:00Z"', '"1:2"', '""'])
    ],
    "format duration": [
        Probe(of(type="string", format="duration"), ['"P1D"', '"PT1H30M"', '"P3W"'], ['"P"', '"1D"', '""'])
    ],
    "format email": [
        Probe(of(type="string", format="email"), ['"a@b.com"', '"x.y+z@a-b.org"'], ['"a"', '"@b.com"', '"a@"', '""'])
    ],
    "format hostname": [
        Probe(of(type="string", format="hostname"), ['"a.com"', '"localhost"'], ['"-a"', '"a..b"', '"a b"', '""'])
    ],
    "format ipv4": [
        Probe(
            of(type="string", format="ipv4"),
            ['"1.2.3.4"', '"255.255.255.0"'],
            ['"256.1.1.1"', '"1.2.3"', '"1.2.3.4.5"', '""'],
        )
    ],
    "format ipv6": [
        Probe(
            of(type="string", format="ipv6"),
            ['"::1"', '"2001:db8::ff00:42"', '"1:2:3:4:5:6:7:8"'],
            ['"1:2"', '":::"', '"g::1"', '""'],
        )
    ],
    "format uri": [
        Probe(
            of(type="string", format="uri"),
            ['"http://a.com/b?c=d#e"', '"urn:isbn:1"'],
            ['"a b"', '"//a"', '""', '"abc"'],
        )
    ],
    "format uuid": [
        Probe(
            of(type="string", format="uuid"),
            ['"123e4567-e89b-12d3-a456-426614174000"'],
            ['"123e4567"', '"123e4567-e89b-12d3-a456-42661417400g"', '""'],
        )
    ],
}
