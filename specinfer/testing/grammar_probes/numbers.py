"""What do probes of a number's keywords say?"""

from specinfer.testing.grammar_probes.probe import D4, Probe, of

NUMBERS: dict[str, list[Probe]] = {
    "minimum": [
        Probe(of(type="integer", minimum=3), ["3", "10", "999999"], ["2", "0", "-5", "-30"]),
        Probe(of(type="integer", minimum=-3), ["-3", "-1", "0", "7"], ["-4", "-10"]),
    ],
    "maximum": [
        Probe(of(type="integer", maximum=120), ["120", "0", "99", "-1", "-500"], ["121", "200", "1000"]),
        Probe(of(type="integer", minimum=7, maximum=12), ["7", "9", "10", "12"], ["6", "13", "70", "-8", "1"]),
    ],
    "exclusiveMinimum": [Probe(of(type="integer", exclusiveMinimum=3), ["4", "10"], ["3", "2", "-5"])],
    "exclusiveMaximum": [Probe(of(type="integer", exclusiveMaximum=3), ["2", "-10"], ["3", "10"])],
    "minimum of a number": [
        Probe(of(type="number", minimum=1.5), ["1.5", "2", "1.75", "100"], ["1.4", "1", "0", "-2", "1.49"]),
        Probe(of(type="number", minimum=0), ["0", "0.5", "3"], ["-1", "-0.5"]),
    ],
    "maximum of a number": [
        Probe(of(type="number", maximum=1.5), ["1.5", "1", "-100", "0.25"], ["1.6", "2", "15", "1.51"]),
        Probe(of(type="number", minimum=0, maximum=1), ["0", "1", "0.5"], ["1.01", "-0.1", "2"]),
    ],
    "exclusiveMinimum of a number": [Probe(of(type="number", exclusiveMinimum=0), ["0.1", "1"], ["0", "-1", "0.0"])],
    "exclusiveMaximum of a number": [Probe(of(type="number", exclusiveMaximum=1), ["0.9", "-1"], ["1", "1.0", "1.5"])],
    "exclusiveMinimum as a boolean": [
        Probe({"$schema": D4, "type": "integer", "minimum": 3, "exclusiveMinimum": True}, ["4"], ["3", "2"])
    ],
    "exclusiveMaximum as a boolean": [
        Probe({"$schema": D4, "type": "integer", "maximum": 3, "exclusiveMaximum": True}, ["2"], ["3", "4"])
    ],
    "bound beyond 2^53": [
        Probe(of(type="integer", maximum=2**63 - 1), ["9223372036854775807", "0"], ["9223372036854775808"]),
        Probe(
            of(type="integer", minimum=0, maximum=18446744073709551615),
            ["18446744073709551615"],
            ["18446744073709551616", "-1"],
        ),
    ],
    "fraction as an integer's bound": [
        Probe(of(type="integer", minimum=1.5, maximum=3.5), ["2", "3"], ["1", "4", "1.5"]),
        Probe(of(type="integer", minimum=-1.5), ["-1", "0"], ["-2"]),
    ],
    "two bounds on one side": [
        Probe(of(type="integer", minimum=3, exclusiveMinimum=5), ["6"], ["3", "5"]),
        Probe(of(type="integer", maximum=3, exclusiveMaximum=5), ["3"], ["4", "5"]),
    ],
    "multipleOf": [Probe(of(type="integer", multipleOf=3), ["0", "3", "12", "-6"], ["1", "13", "-2"])],
    "multipleOf of a number": [Probe(of(type="number", multipleOf=2), ["0", "2", "14"], ["1", "2.5", "13"])],
    "multipleOf a fraction": [Probe(of(type="number", multipleOf=0.5), ["0", "2.5", "1"], ["0.3", "2.25"])],
    "multipleOf with bounds": [
        Probe(of(type="integer", multipleOf=5, minimum=7, maximum=30), ["10", "30"], ["5", "8", "35", "0"])
    ],
}
