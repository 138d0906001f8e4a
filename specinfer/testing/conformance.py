"""Does a plugin keep its protocol, and the output law with it?

Every check is a function of a factory, so a plugin is tested as it will be built:

    python -m specinfer.testing proposers mypackage.mine:MyProposer          # from a shell
    specinfer.testing.check("proposers", lambda: MyProposer(num_draft_tokens=3))   # from a test

Always true: a plugin that passes gives exactly the target's law on every engine shape tried here; a check that could
show nothing (no draft was ever made) says so in its result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from specinfer import registry
from specinfer.config import CacheConfig, EngineConfig, SchedulerConfig
from specinfer.errors import PluginError
from specinfer.llm import LLM
from specinfer.protocols import Randomness
from specinfer.testing.laws import assert_same_law, output_law
from specinfer.testing.models import TinyModel, tiny_loaded_model
from specinfer.testing.proposers import SampledProposer, ScriptedProposer
from specinfer.testing.reference import echo_script, greedy_continuation
from specinfer.types import RequestOutput, SamplingParams

Factory = Callable[[], Any]
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


def _tiny_model(vocab_size: int, **fields: Any) -> tuple[Any, TinyModel]:
    loaded = tiny_loaded_model(vocab_size=vocab_size, max_model_len=64, **fields)
    assert isinstance(loaded.model, TinyModel)
    return loaded, loaded.model


def _generate(shape: str, parts: Mapping[str, Any], params: Any) -> tuple[list[RequestOutput], TinyModel]:
    loaded, model = _tiny_model(8, order=2)
    llm = LLM(SHAPES[shape], loaded_model=loaded, **parts)
    outputs = llm.generate(list(PROMPTS), params)
    llm.engine.check_integrity()
    for output in outputs:
        assert output.error is None, output.error
        assert output.draft_error is None, output.draft_error
    return outputs, model


def _note(outputs: Sequence[RequestOutput]) -> str:
    drafted = sum(output.stats.num_draft_tokens for output in outputs)
    accepted = sum(output.stats.num_accepted_tokens for output in outputs)
    if not drafted:
        return "it drafted nothing here"
    return "" if 0 < accepted < drafted else f"{accepted} of {drafted} drafted tokens were accepted"


def greedy_tokens_equal_plain_decoding(make: Callable[[], dict[str, Any]]) -> str:
    """In every engine shape, preemption included."""
    note = ""
    for shape in SHAPES:
        outputs, model = _generate(shape, make(), SamplingParams(temperature=0, max_tokens=24))
        for prompt, output in zip(PROMPTS, outputs, strict=True):
            expected = greedy_continuation(model, prompt, 24)
            assert output.outputs[0].token_ids == expected, f"{shape}: {output.outputs[0].token_ids} != {expected}"
        note = note or _note(outputs)
    return note


def sampled_law_is_the_targets(make: Callable[[], dict[str, Any]]) -> str:
    """Every outcome of the real engine enumerated, with parameters that each draft row sees differently.

    Four tokens: the first comes from the prompt, so that a draft of two is verified behind it.
    """
    params = SamplingParams(max_tokens=4, seed=0, temperature=1.2, frequency_penalty=0.6)
    drafted = 0

    def run(parts: dict[str, Any]) -> Callable[[Randomness], list[int]]:
        def one(randomness: Randomness) -> list[int]:
            nonlocal drafted
            loaded, _ = _tiny_model(2, order=None, sharpness=1.0)
            llm = LLM(SHAPES["roomy"], loaded_model=loaded, randomness=randomness, **parts)
            output = llm.generate([0, 1, 0], params)[0]
            assert output.draft_error is None and output.error is None, output.draft_error or output.error
            drafted += output.stats.num_draft_tokens
            return output.outputs[0].token_ids

        return one

    plain = output_law(run({}))
    assert_same_law(output_law(run(make())), plain)
    return "" if drafted else "it drafted nothing here"


def a_seeded_request_does_not_depend_on_its_company(make: Callable[[], dict[str, Any]]) -> str:
    """Alone or in a batch, and run twice: the same tokens."""
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=16)
    together, _ = _generate("roomy", make(), params)
    again, _ = _generate("roomy", make(), params)
    assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in again], "two runs differ"
    for prompt, output in zip(PROMPTS, together, strict=True):
        loaded, _ = _tiny_model(8, order=2)
        alone = LLM(SHAPES["roomy"], loaded_model=loaded, **make()).generate(prompt, params)[0]
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids, f"{prompt}: alone and in a batch differ"
    return _note(together)


def no_draft_is_made_where_none_is_asked(make: Callable[[], dict[str, Any]]) -> str:
    """num_draft_tokens=0 by request takes the plain path."""
    outputs, _ = _generate("roomy", make(), SamplingParams(temperature=0, max_tokens=12, num_draft_tokens=0))
    assert not any(output.stats.num_draft_tokens for output in outputs)
    return ""


def configuration_survives_a_round_trip(make: Factory) -> str:
    """What `describe` records, the Hydra node accepts and builds again."""
    from omegaconf import OmegaConf

    component = make()
    described = registry.describe(component)
    node = OmegaConf.structured(registry.node_of(type(component)))
    merged = OmegaConf.to_container(OmegaConf.merge(node, {k: v for k, v in described.items() if v is not None}))
    assert isinstance(merged, dict) and set(merged) == set(described), f"{merged} != {described}"
    return ""


ENGINE_CHECKS: tuple[Callable[[Callable[[], dict[str, Any]]], str], ...] = (
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
        parts = partial(_parts, proposer=drafts, verifier=make)
        checks[f"sampled_law_is_the_targets ({name} drafts)"] = partial(sampled_law_is_the_targets, parts)
    parts = partial(_parts, proposer=_one_hot_drafts, verifier=make)
    return checks | {"greedy_tokens_equal_plain_decoding": partial(greedy_tokens_equal_plain_decoding, parts)}


def _parts(**factories: Factory) -> dict[str, Any]:
    return {role: make() for role, make in factories.items()}


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


def checks_of(kind: str, make: Factory) -> dict[str, Callable[[], str]]:
    """The checks for a kind of component, by name; each returns a note or raises."""
    name, round_trip = "configuration_survives_a_round_trip", partial(configuration_survives_a_round_trip, make)
    checks: dict[str, Callable[[], str]] = {name: round_trip}
    if kind == "verifiers":
        return checks | _verifier_checks(make)
    if kind == "trackers":
        return checks | {"a_whole_run_is_recorded": partial(a_whole_run_is_recorded, make)}
    if kind == "proposers":
        parts = partial(_parts, proposer=make)
    elif kind == "controllers":
        parts = partial(_parts, proposer=_one_hot_drafts, controller=make)
    else:
        known = "proposers, verifiers, controllers and trackers"
        raise PluginError(f"no conformance suite for {kind!r}; there is one for {known}")
    return checks | {check.__name__: partial(check, parts) for check in ENGINE_CHECKS}


def run_checks(kind: str, make: Factory) -> list[CheckResult]:
    """Run every check, failures included in the results."""
    results = []
    for name, run in checks_of(kind, make).items():
        try:
            results.append(CheckResult(name, note=run()))
        except Exception as error:  # a foreign plugin may raise anything
            results.append(CheckResult(name, error=f"{type(error).__name__}: {error}"))
    return results


def check(kind: str, make: Factory) -> None:
    """Fail with every broken check's name and reason."""
    broken = [f"{result.name}: {result.error}" for result in run_checks(kind, make) if not result.passed]
    assert not broken, "\n".join(broken)
