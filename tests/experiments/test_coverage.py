"""Every form counts once for each backend, and instances are judged by the whole grammar in the tokenizer's tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from experiments import json_schema
from experiments.coverage import Attempt, Outcome, attempts, coverage_rows
from experiments.instances import spelled, takes
from experiments.json_schema import COVERAGE
from experiments.workloads import Conversation
from specinfer import StructuredOutputs
from specinfer.config import StructuredConfig
from specinfer.engine.forming import token_table
from specinfer.errors import ConfigError
from specinfer.structured.manager import GrammarManager
from tests.experiments.conftest import Compose, load_tiny

CONFIG = StructuredConfig(isolate=False)
INT = {"type": "integer"}


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load_tiny(None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def grammars(loaded: Any) -> Iterator[GrammarManager]:
    manager = GrammarManager(CONFIG, lambda: token_table(loaded))
    yield manager
    manager.close()


def asking(schema: Any, *instances: tuple[Any, bool], name: str = "q") -> Conversation:
    reference = [{"data": data, "valid": valid} for data, valid in instances]
    return Conversation(name, "t", ("JSON please",), reference, StructuredOutputs(json=schema))


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ({"b": 1, "a": 2}, {"properties": {"a": INT, "b": INT}}, '{"a":2,"b":1}'),
        ({"x": 0, "b": 1, "a": 2}, {"properties": {"a": INT, "b": INT}}, '{"a":2,"b":1,"x":0}'),
        ([{"b": 1, "a": 2}], {"items": {"properties": {"a": INT, "b": INT}}}, '[{"a":2,"b":1}]'),
        ([{"b": 1, "a": 2}], {"prefixItems": [{"properties": {"a": INT}}]}, '[{"a":2,"b":1}]'),
        ([0, {"b": 1, "a": 2}], {"items": [{}], "additionalItems": {"properties": {"a": INT}}}, '[0,{"a":2,"b":1}]'),
        ({"b": 1, "a": 2}, {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": INT}}}}, '{"a":2,"b":1}'),
        ({"k": {"b": 1, "a": 2}}, {"additionalProperties": {"properties": {"a": INT}}}, '{"k":{"a":2,"b":1}}'),
        ({"k1": {"b": 1, "a": 2}}, {"patternProperties": {"^k": {"properties": {"a": INT}}}}, '{"k1":{"a":2,"b":1}}'),
        ({"b": 1, "a": 2}, {"anyOf": [{"required": ["b"]}, {"properties": {"a": INT}}]}, '{"a":2,"b":1}'),
        ({"a": {"a": {"b": 1, "a": 2}}}, {"properties": {"a": {"$ref": "#"}}}, '{"a":{"a":{"a":2,"b":1}}}'),
        ("é\n", True, '"é\\n"'),
    ],
    ids=str,
)
def test_members_are_spelled_in_the_order_of_every_schema_that_may_hold(value: Any, schema: Any, text: str) -> None:
    assert spelled(value, schema) == text
    assert json.loads(text) == value


def test_a_beginning_is_not_taken(grammars: GrammarManager, loaded: Any) -> None:
    grammar = grammars.submit(StructuredOutputs(json=INT, max_whitespace=0)).result()
    assert takes(grammar, loaded.tokenizer, "-12")
    assert not takes(grammar, loaded.tokenizer, "-")
    assert not takes(grammar, loaded.tokenizer, "12a")


def test_each_outcome_is_told_apart(grammars: GrammarManager, loaded: Any) -> None:
    fine = asking({"type": "array", "items": INT, "maxItems": 2}, ([1], True), ([1, 2, 3], False), name="fine")
    inexact = asking({"type": "array", "items": INT, "uniqueItems": True}, ([1], True), name="inexact")
    unlike = asking({"oneOf": [{"minimum": 3}, {"minLength": 2}]}, name="unlike")
    plain = Conversation("free", "t", ("Hello",))
    found = attempts([fine, inexact, unlike, plain], grammars, loaded.tokenizer, CONFIG)
    by_key = {(a.backend, a.question_id): a for a in found}
    assert len(found) == len(by_key) == 4 * 3
    assert by_key["auto", "fine"].outcome is Outcome.COMPILED and by_key["auto", "fine"].taken_by == "llguidance"
    assert by_key["xgrammar", "fine"].num_valid_taken == by_key["xgrammar", "fine"].num_valid == 1
    assert by_key["xgrammar", "fine"].num_invalid == 1 and by_key["xgrammar", "fine"].num_invalid_taken == 0
    assert by_key["auto", "inexact"].outcome is Outcome.REFUSED and "uniqueItems" in str(
        by_key["auto", "inexact"].error
    )
    assert by_key["llguidance", "unlike"].outcome is Outcome.FAILED
    rows = {row[0]: row[1:5] for row in coverage_rows(found)}
    assert rows["auto"] == ["1", "1", "1", "33%"]


def test_a_row_counts_only_its_own_backend() -> None:
    def attempt(backend: str, outcome: Outcome, compile_s: float | None) -> Attempt:
        return Attempt(
            backend=backend,
            question_id="q",
            outcome=outcome,
            taken_by=None,
            compile_s=compile_s,
            error=None,
            num_valid=2,
            num_valid_taken=1,
            num_invalid=0,
            num_invalid_taken=0,
        )

    found = [attempt("a", Outcome.COMPILED, s) for s in (0.001, 0.002, 0.9)] + [attempt("b", Outcome.FAILED, None)]
    assert coverage_rows(found) == [
        ["a", "3", "0", "0", "100%", "2.0", "900.0", "3 of 6", "0 of 0"],
        ["b", "0", "0", "1", "0%", "-", "-", "1 of 2", "0 of 0"],
    ]


def test_coverage_and_comparison_are_one_folder(compose: Compose, tmp_path: Path) -> None:
    lines = [
        {
            "id": str(n),
            "split": "s",
            "schema": {"type": "integer", "maximum": n},
            "instances": [{"data": n, "valid": True}],
        }
        for n in (1, 2)
    ]
    path = tmp_path / "schemas.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    config = compose(
        "experiment=json_schema",
        f"workload.path={path}",
        "sampling.max_tokens=8",
        "run.chat=false",
        "model.cache.num_blocks=64",
        "~compare.forced_filtered_eagle",
    )
    printed = StringIO()
    json_schema.execute(config, tmp_path, Console(file=printed, width=130), load=load_tiny)
    found = pl.read_parquet(tmp_path / COVERAGE)
    assert set(found["backend"]) == {"llguidance", "xgrammar", "outlines", "auto"}
    assert found.filter(pl.col("backend") == "auto")["num_valid_taken"].to_list() == [1, 1]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["forms"]["plain"]["num_outputs"] == 2
    assert "coverage: forms compiled by each backend" in printed.getvalue()


def test_a_workload_without_forms_is_a_mistake(compose: Compose, tmp_path: Path) -> None:
    config = compose("experiment=json_schema", "workload=own")
    with pytest.raises(ConfigError, match="has no forms"):
        json_schema.execute(config, tmp_path, Console(file=StringIO()), load=load_tiny)
