"""What the command line names becomes the component that Python would make."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import conf
from experiments.composition import PLUGIN_GROUPS, WORKLOADS, make, make_methods, paths_in, register_configs
from experiments.settings import RunSettings
from proposers.ngram import NgramProposer
from specinfer import registry
from specinfer.config import EngineConfig, SchedulingPolicy
from specinfer.errors import ConfigError
from specinfer.sampling.verifiers.greedy_match import GreedyMatchVerifier
from specinfer.types import SamplingParams
from tests.experiments.conftest import Compose
from tests.experiments.foreign import RepeatLast

NEEDS_HEADS = {"proposers", "batch_sizes", "demo", "grammar_factorial", "json_schema"}
"""Experiments whose drafters are trained for a real target"""
EXPERIMENTS = sorted(path.stem for path in (Path(conf.__file__).parent / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_runs(experiment: str, run_tiny: Any, compose: Compose) -> None:
    methods = make_methods(compose(f"experiment={experiment}"))
    assert len(methods) >= 2
    if experiment in NEEDS_HEADS:
        return
    record, _, _ = run_tiny(f"experiment={experiment}", "sampling.max_tokens=6")
    assert record.overall["plain"].num_tokens > 0
    assert len(record.overall) >= 2
    assert not record.failures


def test_the_plain_configuration_makes_the_dataclasses_defaults(compose: Compose) -> None:
    config = compose()
    assert make(config.run) == RunSettings()
    assert make(config.model) == EngineConfig(model="demo")
    assert make(config.sampling) == SamplingParams(temperature=0.0, max_tokens=128)
    assert make(config.proposer) == NgramProposer()


@pytest.mark.parametrize(
    ("group", "name", "cls"),
    [
        *[(g, n, c) for g, kind in PLUGIN_GROUPS.items() for n, c in registry.discover(kind)[0].items()],
        *[("workload", n, c) for n, c in WORKLOADS.items()],
    ],
    ids=str,
)
def test_every_choice_makes_its_dataclass_with_its_defaults(group: str, name: str, cls: type, compose: Compose) -> None:
    assert make(compose(f"{group}={name}")[group]) == cls()


def test_enums_lists_and_nested_fields_arrive_as_python_has_them(compose: Compose) -> None:
    config = compose("model.scheduler.policy=PRIORITY", "sampling.stop=[a,b]", "+sampling.logit_bias={3: 1.5}")
    assert make(config.model).scheduler.policy is SchedulingPolicy.PRIORITY
    sampling = make(config.sampling)
    assert sampling.stop_strings == ("a", "b")
    assert type(sampling.stop) is list and type(sampling.logit_bias) is dict
    assert sampling.logit_bias == {3: 1.5}


# ----------------------------------------------------------------------------------------------------- plugins


def test_a_class_out_of_the_tree_is_a_choice_with_checked_fields(compose: Compose) -> None:
    path = "tests.experiments.foreign:RepeatLast"
    assert make(compose(f"proposer={path}", "proposer.num_draft_tokens=5").proposer) == RepeatLast(5)


def test_paths_are_found_in_sweeps_and_nothing_else_is() -> None:
    arguments = [
        "-m",
        "proposer=ngram,a.b:C",
        "+tracker=d:E",
        "run.name=x:y",
        "workload.path=C:/x",
        "verifier=rejection",
    ]
    assert paths_in(arguments) == [("proposer", "a.b:C"), ("tracker", "d:E")]


def test_a_plugin_that_fails_to_import_is_named_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compose: Compose
) -> None:
    real = registry._entry_points

    def with_broken(kind: str) -> dict[str, EntryPoint]:
        return {**real(kind), "broken": EntryPoint("broken", "no.such.module:X", f"specinfer.{kind}")}

    monkeypatch.setattr(registry, "_entry_points", with_broken)
    with caplog.at_level(logging.WARNING):
        register_configs()
    assert any("proposer 'broken' failed to import" in record.getMessage() for record in caplog.records)
    assert make(compose("proposer=ngram").proposer) == NgramProposer()


# ----------------------------------------------------------------------------------------------------- methods


def test_the_run_compares_plain_its_own_proposer_and_the_named_ones(compose: Compose) -> None:
    methods = make_methods(
        compose(
            "+compare.short.proposer=ngram",
            "+compare.dotted.proposer={_target_: proposers.ngram.NgramProposer, num_draft_tokens: 8}",
            "+compare.foreign.proposer='tests.experiments.foreign:RepeatLast'",
            "+compare.greedy.verifier=greedy_match",
        )
    )
    assert [m.name for m in methods] == ["plain", "ngram", "short", "dotted", "foreign", "greedy"]
    made = {m.name: m.proposer for m in methods}
    assert made["dotted"] == NgramProposer(num_draft_tokens=8)
    assert made["foreign"] == RepeatLast()
    assert methods[-1].verifier == GreedyMatchVerifier()
    assert made["greedy"] == NgramProposer() and made["greedy"] is not made["ngram"]


def test_without_a_proposer_only_the_named_methods_are_compared_with_plain(compose: Compose) -> None:
    methods = make_methods(compose("proposer=none", "+compare.k1.proposer={_target_: ngram, num_draft_tokens: 1}"))
    assert [m.name for m in methods] == ["plain", "k1"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+compare.a.proposer=ngrm", "compare.a.proposer: unknown proposer 'ngrm'"),
        ("+compare.a.proposer={_target_: ngram, k: 3}", "compare.a.proposer: Key 'k' not in"),
        ("+compare.a.proposer={_target_: ngram, num_draft_tokens: x}", "compare.a.proposer: Value 'x'"),
        ("+compare.a.proposer={num_draft_tokens: 3}", "compare.a.proposer needs _target_"),
        ("+compare.a.propser=ngram", "compare.a must be a mapping with the keys"),
        ("+compare.a=ngram", "compare.a must be a mapping with the keys"),
        ("+compare.plain.proposer=ngram", "compare.plain: the run already has a method of this name"),
    ],
)
def test_a_mistake_in_a_named_method_is_an_error_with_its_place(override: str, message: str, compose: Compose) -> None:
    with pytest.raises(ConfigError) as caught:
        make_methods(compose(override))
    assert str(caught.value).startswith(message)
