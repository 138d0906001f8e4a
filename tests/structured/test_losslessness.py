"""Whatever drafts, and whatever becomes of illegal drafts, is the output the target's law under the form?

Generated from the registry: every installed proposer, chain and tree, with every policy, on every backend, in several
engine shapes. The reference is computed without an engine: at each position p restricted to the legal tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from specinfer import LLM, EngineConfig, IllegalDrafts, SamplingParams, StructuredOutputs, registry
from specinfer.config import CacheConfig, SchedulerConfig, StructuredConfig
from specinfer.engine.forming import token_table
from specinfer.protocols import LoadedModel, Randomness
from specinfer.structured.manager import GrammarManager
from specinfer.testing import assert_same_law, output_law
from specinfer.testing.models import tiny_loaded_model
from specinfer.testing.proposers import SampledProposer
from tests.engine.test_trees import TreeProposer, sampled_tree
from tests.proposers import zoo

A, B, C, EOS = range(4)
FORM = StructuredOutputs(regex="(a|ab|bca)(a|cab)?")
WORDS = [first + second for first in ("a", "ab", "bca") for second in ("", "a", "cab")]
PROMPT = [0, 1, 0, 1, 0, 1]
PARAMS = SamplingParams(temperature=1.1, seed=0, max_tokens=4, structured_outputs=FORM, frequency_penalty=0.5)
BACKENDS = registry.names("grammars")
CONFIG = EngineConfig(cache=CacheConfig(block_size=4, num_blocks=64), structured=StructuredConfig(isolate=False))
PREEMPTING = dataclasses.replace(CONFIG, cache=CacheConfig(block_size=4, num_blocks=4))
COMPANIONS = [
    SamplingParams(temperature=0, max_tokens=5),
    SamplingParams(temperature=0, max_tokens=5, structured_outputs=FORM),
]
SMALL_CHUNKS = dataclasses.replace(CONFIG, scheduler=SchedulerConfig(max_num_batched_tokens=4, max_num_seqs=2))


@cache
def target() -> LoadedModel:
    return dataclasses.replace(zoo.target(4), eos_token_ids=frozenset({EOS}))


@cache
def tiny() -> LoadedModel:
    return tiny_loaded_model(vocab_size=4, eos_token_id=EOS, max_model_len=32, order=None, sharpness=1.0)


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarManager]:
    manager = GrammarManager(CONFIG.structured, lambda: token_table(target()))
    yield manager
    manager.close()


@pytest.fixture(autouse=True)
def _small_draft_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specinfer.llm._load", lambda config: zoo.load_draft_model(4))


Make = Callable[[], Any]
Law = dict[tuple[int, ...], float]


def law_of(
    grammars: GrammarManager,
    make: Make,
    *,
    loaded: LoadedModel | None = None,
    backend: str = "llguidance",
    verifier: str = "rejection",
    policy: IllegalDrafts = IllegalDrafts.KEEP,
    config: EngineConfig = CONFIG,
    beside: Sequence[SamplingParams] = (),
    max_tokens: int = 4,
) -> Law:
    """The enumerated law of one request's tokens, greedy requests beside it."""
    config = dataclasses.replace(config, structured=dataclasses.replace(config.structured, illegal_drafts=policy))
    form = dataclasses.replace(FORM, backend=backend)
    params = dataclasses.replace(PARAMS, structured_outputs=form, max_tokens=max_tokens)

    def one(randomness: Randomness) -> list[int]:
        llm = LLM(config, make(), verifier, loaded_model=loaded or target(), grammars=grammars, randomness=randomness)
        outputs = llm.generate([PROMPT, *[[1, 2, 1, 2]] * len(beside)], [params, *beside])
        llm.engine.check_integrity()
        assert all(o.draft_error is None and o.error is None for o in outputs), outputs
        return outputs[0].outputs[0].token_ids

    return output_law(one)


def masked_law(loaded: LoadedModel) -> Law:
    """p restricted to what some word goes on with, position by position, and renormalised."""
    found: Law = {}
    model: Any = loaded.model

    def follow(tokens: tuple[int, ...], weight: float) -> None:
        if len(tokens) == PARAMS.max_tokens or EOS in tokens:
            found[tokens] = weight
            return
        text = "".join("abc"[token] for token in tokens)
        legal = [t for t in range(3) if any(word.startswith(text + "abc"[t]) for word in WORDS)]
        legal += [EOS] if text in WORDS else []
        logits = model.logits([*PROMPT, *tokens]).clone()
        for token in tokens:
            logits[token] -= PARAMS.frequency_penalty
        law = (logits[legal] / PARAMS.temperature).softmax(-1)
        for token, p in zip(legal, law.tolist(), strict=True):
            follow((*tokens, token), weight * p)

    follow((), 1.0)
    return found


@pytest.fixture(scope="module")
def plain(grammars: GrammarManager) -> Law:
    return law_of(grammars, lambda: None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_drafts_the_law_is_p_restricted_to_the_legal_tokens(backend: str) -> None:
    manager = GrammarManager(CONFIG.structured, lambda: token_table(tiny()))
    assert_same_law(law_of(manager, lambda: None, loaded=tiny(), backend=backend), masked_law(tiny()))
    manager.close()


def law_of_q(tokens: Sequence[int]) -> torch.Tensor:
    """A drafter's q that knows no form: two tokens that may be legal, illegal or an end, one of them or both."""
    q = torch.zeros(4, dtype=torch.float64)
    q[sum(tokens) % 4], q[(sum(tokens) + 1) % 4] = 0.6, 0.4
    return q


def sampled_chain() -> Any:
    return SampledProposer(law=law_of_q, num_draft_tokens=3)


def sampled_branches() -> Any:
    made: list[TreeProposer] = []
    made.append(TreeProposer(sampled_tree([-1, -1], replace=False, proposer=made)))
    return made[0]


EXACT = ["rejection", "block", "multi_candidate", "sample_match", "greedy_match"]


Kind = tuple[Make, str, str, IllegalDrafts]
KINDS: list[Kind] = list(itertools.product([sampled_chain, sampled_branches], BACKENDS, EXACT, IllegalDrafts))
COVERING_KINDS = [kind for n, kind in enumerate(KINDS) if (n + n // 3) % 3 == 0 and kind[0] is sampled_chain]
"""Every verifier on every backend with one policy; the trees have too many paths"""


def check_kind(kind: Kind, grammars: GrammarManager, plain: Law) -> None:
    make, backend, verifier, policy = kind
    assert_same_law(law_of(grammars, make, backend=backend, verifier=verifier, policy=policy), plain)


@pytest.mark.parametrize("kind", COVERING_KINDS, ids=str)
def test_a_drafter_that_knows_no_form_changes_nothing(kind: Kind, grammars: GrammarManager, plain: Law) -> None:
    check_kind(kind, grammars, plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in COVERING_KINDS], ids=str)
def test_a_drafter_that_knows_no_form_changes_nothing_in_every_combination(
    kind: Kind, grammars: GrammarManager, plain: Law
) -> None:
    check_kind(kind, grammars, plain)


Case = tuple[tuple[str, str], str, IllegalDrafts]
CASES: list[Case] = list(itertools.product(zoo.VARIANTS, BACKENDS, IllegalDrafts))
COVERING = [case for n, case in enumerate(CASES) if (n + n // 6) % 3 == 0]
"""Every proposer with two of the six combinations"""


def check_law(case: Case, grammars: GrammarManager, plain: Law) -> None:
    (name, kind), backend, policy = case
    found = law_of(
        grammars,
        lambda: zoo.make(name, kind, vocab_size=4, num_draft_tokens=3),
        backend=backend,
        policy=policy,
    )
    assert_same_law(found, plain)


@pytest.mark.parametrize("case", COVERING, ids=str)
def test_the_law_is_the_same_with_every_proposer(case: Case, grammars: GrammarManager, plain: Law) -> None:
    check_law(case, grammars, plain)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in COVERING], ids=str)
def test_the_law_is_the_same_in_every_combination(case: Case, grammars: GrammarManager, plain: Law) -> None:
    check_law(case, grammars, plain)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_law_is_the_same_in_every_combination_after_preemption(case: Case, grammars: GrammarManager) -> None:
    (name, kind), backend, policy = case
    plain = law_of(grammars, lambda: None, max_tokens=3)
    found = law_of(
        grammars,
        lambda: zoo.make(name, kind, vocab_size=4, num_draft_tokens=3),
        backend=backend,
        policy=policy,
        config=PREEMPTING,
        beside=COMPANIONS,
        max_tokens=3,
    )
    assert_same_law(found, plain)


def sampled_token() -> Any:
    return SampledProposer(law=law_of_q, num_draft_tokens=1)


COMPANY = list(
    itertools.product(
        [sampled_token, lambda: zoo.make("ngram", "chain", vocab_size=4, num_draft_tokens=3)],
        IllegalDrafts,
        [PREEMPTING, SMALL_CHUNKS],
    )
)


@pytest.mark.parametrize(
    ("make", "policy", "config"),
    [pytest.param(*case, marks=[pytest.mark.slow] if n in {1, 2} else []) for n, case in enumerate(COMPANY)],
)
def test_the_law_is_the_same_in_company_in_chunks_and_after_preemption(
    make: Make, policy: IllegalDrafts, config: EngineConfig, grammars: GrammarManager
) -> None:
    plain = law_of(grammars, lambda: None, max_tokens=3)  # first, so that no path waits for a compilation
    found = law_of(grammars, make, policy=policy, config=config, beside=COMPANIONS, max_tokens=3)
    assert_same_law(found, plain)


def test_the_biased_rule_is_caught(monkeypatch: pytest.MonkeyPatch, grammars: GrammarManager, plain: Law) -> None:
    """Cutting at the illegal token and verifying with the raw q: what the policies above exist to avoid."""

    def biased(draft: Any, rows: Any, policy: IllegalDrafts) -> Any:
        num = next((i for i, legal in enumerate(rows.is_legal) if not legal), len(rows.is_legal))
        return draft.truncate(num) if num else None

    monkeypatch.setattr("specinfer.engine.masking.fitted", biased)
    with pytest.raises(AssertionError, match="the laws differ"):
        assert_same_law(law_of(grammars, sampled_chain), plain)
