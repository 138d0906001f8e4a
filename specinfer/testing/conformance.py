"""Does a plugin keep its protocol, and the output law with it?

Every check is a function of a factory, so a plugin is tested as it will be built:

    python -m specinfer.testing proposers mypackage.mine:MyProposer          # from a shell
    specinfer.testing.check("proposers", lambda: MyProposer(num_draft_tokens=3))   # from a test
    specinfer.testing.check("proposers", lambda v: MyHead(weights_for(v)), target=tiny_llama)   # one with hidden states

Always true: a plugin that passes gives exactly the target's law on every engine shape tried here; a check that could
show nothing (no draft was ever made) says so in its result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from specinfer import registry
from specinfer.config import CacheConfig, EngineConfig, SchedulerConfig
from specinfer.errors import PluginError
from specinfer.llm import LLM
from specinfer.protocols import LoadedModel, Randomness
from specinfer.testing.grammar_conformance import grammar_checks
from specinfer.testing.laws import assert_same_law, output_law
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import SampledProposer, ScriptedProposer
from specinfer.testing.reference import echo_script
from specinfer.types import RequestOutput, SamplingParams

Factory = Callable[..., Any]
"""Makes the plugin; where a target is given, from its vocabulary's size"""
Target = Callable[[int], LoadedModel]
"""A model with so many tokens"""
PROMPTS = ([1, 2, 3, 1, 2, 3], [5] * 9, [4, 4, 1, 7, 2], [7])
SHAPES: Mapping[str, EngineConfig] = {
    "roomy": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=200)),
    "small chunks": EngineConfig(
        cache=CacheConfig(block_size=4, num_blocks=200),
        scheduler=SchedulerConfig(max_num_batched_tokens=5, max_num_seqs=4),
    ),
    "preempting": EngineConfig(cache=CacheConfig(block_size=4, num_blocks=14)),
}


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome; `note` says what a passed check could not show."""

    name: str
    error: str | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.error is None


def tiny_target(vocab_size: int) -> LoadedModel:
    """A TinyModel: flat where every outcome is enumerated, with a short memory where drafts should come true."""
    is_enumerated = vocab_size <= 2
    return tiny_loaded_model(
        vocab_size=vocab_size,
        max_model_len=64,
        order=None if is_enumerated else 2,
        sharpness=1.0 if is_enumerated else 2.0,
    )


@dataclass(frozen=True)
class _Trial:
    """Parts of an engine, made anew for each run, and the target that they run on."""

    parts: Mapping[str, Factory] = field(default_factory=dict)
    target: Target = tiny_target
    is_own: bool = False
    """The target was given: factories get the vocabulary's size"""

    def llm(self, shape: str, vocab_size: int, randomness: Randomness | None = None) -> LLM:
        parts = {role: make(vocab_size) if self.is_own else make() for role, make in self.parts.items()}
        return LLM(SHAPES[shape], loaded_model=self.target(vocab_size), randomness=randomness, **parts)

    def plain(self) -> _Trial:
        return _Trial(target=self.target)


def _generate(trial: _Trial, shape: str, params: Any) -> list[RequestOutput]:
    llm = trial.llm(shape, 8)
    outputs = llm.generate(list(PROMPTS), params)
    llm.engine.check_integrity()
    for output in outputs:
        assert output.error is None, output.error
        assert output.draft_error is None, output.draft_error
    return outputs


def _note(outputs: Sequence[RequestOutput]) -> str:
    drafted = sum(output.stats.num_draft_tokens for output in outputs)
    accepted = sum(output.stats.num_accepted_tokens for output in outputs)
    if not drafted:
        return "it drafted nothing here"
    return "" if 0 < accepted < drafted else f"{accepted} of {drafted} drafted tokens were accepted"


def greedy_tokens_equal_plain_decoding(trial: _Trial) -> str:
    """In every engine shape, preemption included."""
    params = SamplingParams(temperature=0, max_tokens=24)
    expected = [output.outputs[0].token_ids for output in _generate(trial.plain(), "roomy", params)]
    note = ""
    for shape in SHAPES:
        outputs = _generate(trial, shape, params)
        for wanted, output in zip(expected, outputs, strict=True):
            assert output.outputs[0].token_ids == wanted, f"{shape}: {output.outputs[0].token_ids} != {wanted}"
        note = note or _note(outputs)
    return note


def sampled_law_is_the_targets(trial: _Trial) -> str:
    """Every outcome of the real engine enumerated, with parameters that each draft row sees differently.

    Five tokens: the first comes from the prompt, so that a draft of three is verified behind it.
    """
    params = SamplingParams(max_tokens=5, seed=0, temperature=1.2, frequency_penalty=0.6)
    drafted = 0

    def run(trial: _Trial) -> Callable[[Randomness], list[int]]:
        def one(randomness: Randomness) -> list[int]:
            nonlocal drafted
            output = trial.llm("roomy", 2, randomness).generate([0, 1, 0], params)[0]
            assert output.draft_error is None and output.error is None, output.draft_error or output.error
            drafted += output.stats.num_draft_tokens
            return output.outputs[0].token_ids

        return one

    plain = output_law(run(trial.plain()))
    drafted = 0
    assert_same_law(output_law(run(trial)), plain)
    return "" if drafted else "it drafted nothing here"


def a_seeded_request_does_not_depend_on_its_company(trial: _Trial) -> str:
    """Alone or in a batch, and run twice: the same tokens."""
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=16)
    together, again = _generate(trial, "roomy", params), _generate(trial, "roomy", params)
    assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in again], "two runs differ"
    for prompt, output in zip(PROMPTS, together, strict=True):
        alone = trial.llm("roomy", 8).generate(prompt, params)[0]
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids, f"{prompt}: alone and in a batch differ"
    return _note(together)


def no_draft_is_made_where_none_is_asked(trial: _Trial) -> str:
    """num_draft_tokens=0 by request takes the plain path."""
    outputs = _generate(trial, "roomy", SamplingParams(temperature=0, max_tokens=12, num_draft_tokens=0))
    assert not any(output.stats.num_draft_tokens for output in outputs)
    return ""


def configuration_survives_a_round_trip(make: Callable[[], Any]) -> str:
    """What `describe` records, the Hydra node accepts and builds again."""
    from omegaconf import OmegaConf

    component = make()
    described = registry.describe(component)
    node = OmegaConf.structured(registry.node_of(type(component)))
    merged = OmegaConf.to_container(OmegaConf.merge(node, {k: v for k, v in described.items() if v is not None}))
    assert isinstance(merged, dict) and set(merged) == set(described), f"{merged} != {described}"
    return ""


ENGINE_CHECKS: tuple[Callable[[_Trial], str], ...] = (
    greedy_tokens_equal_plain_decoding,
    sampled_law_is_the_targets,
    a_seeded_request_does_not_depend_on_its_company,
    no_draft_is_made_where_none_is_asked,
)


def _sampled_drafts() -> SampledProposer:
    def law(tokens: list[int]) -> torch.Tensor:
        size = proposer.context.vocab_size
        weights = torch.tensor([(sum(tokens) + 3 * i) % 5 for i in range(size)], dtype=torch.float64) + 0.25
        return weights / weights.sum()

    proposer = SampledProposer(law=law, num_draft_tokens=2)
    return proposer


def _one_hot_drafts() -> ScriptedProposer:
    return ScriptedProposer(echo_script, num_draft_tokens=2)


def _verifier_checks(make: Factory) -> dict[str, Callable[[], str]]:
    verifier = make()
    if not verifier.law.is_exact:
        return {"a lossy verifier names its parameter": lambda: _names_parameter(verifier)}
    checks: dict[str, Callable[[], str]] = {}
    for name, drafts in {"sampled": _sampled_drafts, "one-hot": _one_hot_drafts}.items():
        trial = _Trial({"proposer": drafts, "verifier": make})
        checks[f"sampled_law_is_the_targets ({name} drafts)"] = partial(sampled_law_is_the_targets, trial)
    trial = _Trial({"proposer": _one_hot_drafts, "verifier": make})
    return checks | {"greedy_tokens_equal_plain_decoding": partial(greedy_tokens_equal_plain_decoding, trial)}


def _names_parameter(verifier: Any) -> str:
    assert verifier.law.parameter and hasattr(verifier, verifier.law.parameter), verifier.law
    return "its law was not checked: it declares itself lossy"


def a_whole_run_is_recorded(make: Factory) -> str:
    """Start to finish in an empty folder, with every kind of record and an empty one of each."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        picture = run_dir / "table.csv"
        picture.write_text("task,speedup\nchat,1.2\n")
        tracker = make()
        tracker.start(run_dir, {"model": {"name": "tiny"}, "k": 4}, name="run", group="tests", job_type="compare")
        for step in range(3):
            tracker.log({"plain/tokens_per_s": 20.0 + step}, step)
        tracker.log({}, 3)
        tracker.table("figures", ["task", "speedup"], [["chat", 1.2], ["repeat", None]])
        tracker.table("empty", ["task"], [])
        tracker.artifact(picture, "table")
        tracker.summary({"speedup": 1.2, "interrupted": False})
        tracker.finish()
    return ""


def checks_of(kind: str, make: Factory, target: Target | None = None) -> dict[str, Callable[[], str]]:
    """The checks for a kind of component, by name; each returns a note or raises.

    target: for a proposer that needs more than a TinyModel, a model by vocabulary size (8 and 2 are asked for); `make`
    then gets that size, so that weights fit.
    """
    sized = make if target is None else partial(make, 8)
    name, round_trip = "configuration_survives_a_round_trip", partial(configuration_survives_a_round_trip, sized)
    checks: dict[str, Callable[[], str]] = {name: round_trip}
    if kind == "verifiers":
        return checks | _verifier_checks(make)
    if kind == "trackers":
        return checks | {"a_whole_run_is_recorded": partial(a_whole_run_is_recorded, make)}
    if kind == "grammars":
        return checks | grammar_checks(make)
    if kind == "proposers":
        trial = _Trial({"proposer": make}, cache(target or tiny_target), target is not None)
    elif kind == "controllers":
        trial = _Trial({"proposer": _one_hot_drafts, "controller": make})
    else:
        known = "proposers, verifiers, controllers, grammars and trackers"
        raise PluginError(f"no conformance suite for {kind!r}; there is one for {known}")
    return checks | {check.__name__: partial(check, trial) for check in ENGINE_CHECKS}


def run_checks(kind: str, make: Factory, target: Target | None = None) -> list[CheckResult]:
    """Run every check, failures included in the results; see `checks_of`."""
    results = []
    for name, run in checks_of(kind, make, target).items():
        try:
            results.append(CheckResult(name, note=run()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a foreign plugin may raise anything, a library's panic in Rust too
            results.append(CheckResult(name, error=f"{type(error).__name__}: {error}"))
    return results


def check(kind: str, make: Factory, target: Target | None = None) -> None:
    """Fail with every broken check's name and reason; see `checks_of`."""
    broken = [f"{result.name}: {result.error}" for result in run_checks(kind, make, target) if not result.passed]
    assert not broken, "\n".join(broken)
