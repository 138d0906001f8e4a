"""What the backends' tables say of a feature is what its instances show."""

from __future__ import annotations

import json

import pytest
from jsonschema.validators import Draft202012Validator, validator_for

from specinfer import registry
from specinfer.protocols import Enforcement, GrammarBackend
from specinfer.structured.features import features
from specinfer.testing.grammar_features import BYTES, observed, verdicts
from specinfer.testing.grammar_probes import PROBES, Probe

TAKES_LONG = {("outlines", "any value")}
"""Automata of nested values: most of a minute each"""


@pytest.fixture(scope="module", params=registry.names("grammars"))
def backend(request: pytest.FixtureRequest) -> GrammarBackend:
    made: GrammarBackend = registry.build("grammars", request.param)
    made.bind(BYTES)
    return made


@pytest.mark.parametrize("feature", PROBES)
def test_the_table_says_what_the_instances_show(feature: str, backend: GrammarBackend) -> None:
    if (registry.name_of("grammars", backend), feature) in TAKES_LONG:
        pytest.skip("takes most of a minute; see the slow test")
    assert observed(backend, PROBES[feature]) is backend.enforces.get(feature, Enforcement.REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "feature"), sorted(TAKES_LONG))
def test_the_table_says_what_the_instances_show_where_that_takes_long(name: str, feature: str) -> None:
    backend = registry.build("grammars", name)
    backend.bind(BYTES)
    assert observed(backend, PROBES[feature]) is backend.enforces.get(feature, Enforcement.REFUSED)


def test_a_table_names_known_features_only(backend: GrammarBackend) -> None:
    assert set(backend.enforces) <= set(PROBES)


ALL_PROBES = [(feature, probe) for feature, probes in PROBES.items() for probe in probes]


@pytest.mark.parametrize(("feature", "probe"), ALL_PROBES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_probe_holds_its_feature_and_texts_that_an_independent_validator_judges_alike(
    feature: str, probe: Probe
) -> None:
    import jsonschema_rs

    assert feature in {found for found, _ in features(probe.schema)}
    python = validator_for(probe.schema, default=Draft202012Validator)(probe.schema)
    rust = jsonschema_rs.validator_for(probe.schema, validate_formats=True)

    def is_instance(text: str) -> bool:
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except ValueError:
            return False
        if feature in UNLIKE_PYTHON or "format" in feature:
            return bool(rust.is_valid(value))
        assert python.is_valid(value) == rust.is_valid(value), f"the validators disagree on {text}"
        return bool(rust.is_valid(value))

    assert [text for text in probe.valid if not is_instance(text)] == []
    assert [text for text in probe.invalid if is_instance(text)] == []


UNLIKE_PYTHON = {
    "pattern with a class escape", "patternProperties with a class escape", "pattern that is not portable",
    "bound beyond 2^53",
}  # fmt: skip
"""Python's patterns take digits of all scripts for \\d; JSON Schema has those of ECMA-262"""


def _no_constant(name: str) -> float:
    raise ValueError(f"JSON has no {name}")


def test_an_exact_feature_is_exact_in_every_combination_of_two(backend: GrammarBackend) -> None:
    """As far as two properties of one object go: one probe's schema beside another's."""
    if registry.name_of("grammars", backend) == "outlines":
        pytest.skip("its automata of two values at a time take minutes")
    exact = [
        (feature, probe)
        for feature, probes in PROBES.items()
        for probe in probes[:1]
        if backend.enforces.get(feature) is Enforcement.EXACT
        and "$ref" not in json.dumps(probe.schema)
        and "$schema" not in probe.schema
        and verdicts(backend, probe) is not None
    ]
    assert len(exact) > 10
    for (_, first), (_, second) in zip(exact, exact[1:] + exact[:1], strict=True):
        schema = {
            "type": "object",
            "properties": {"p": first.schema, "q": second.schema},
            "required": ["p", "q"],
            "additionalProperties": False,
        }
        pairs = zip(first.valid, second.valid, strict=False)
        valid = [f'{{"p":{one},"q":{other}}}' for one, other in pairs]
        invalid = [f'{{"p":{one},"q":{second.valid[0]}}}' for one in first.invalid]
        invalid += [f'{{"p":{first.valid[0]},"q":{other}}}' for other in second.invalid]
        found = verdicts(backend, Probe(schema, valid, invalid))
        assert found is not None, schema
        assert all(found[0]) and not any(found[1]), (schema, found)
