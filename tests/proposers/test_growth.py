"""How chains and trees grow, depth by depth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from proposers.branching import Branching
from proposers.growth import Growth, Vocabulary, grow
from proposers.medusa import likeliest_paths
from specinfer.errors import ConfigError
from specinfer.protocols import ProposerContext
from specinfer.sampling.rng import CounterRandomness
from specinfer.testing import ByteTokenizer, TinyModel
from specinfer.types import SamplingParams

MODEL = TinyModel(vocab_size=5, order=None, sharpness=1.5)
CONTEXT = ProposerContext(
    vocab_size=5,
    max_model_len=64,
    eos_token_ids=frozenset(),
    tokenizer=ByteTokenizer(5),
    randomness=CounterRandomness(0),
    device=torch.device("cpu"),
    target=MODEL,
)


@dataclass
class View:
    """A request as a drafter sees it."""

    tokens: list[int]
    params: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0))
    request_id: str = "r"
    num_prompt_tokens: int = 1
    seed: int = 3
    block_ids: tuple[int, ...] = tuple(range(30))
    cache_salt: str = ""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    @property
    def token_ids(self) -> Any:
        return np.array(self.tokens)


def path(branching: Branching, node: int) -> list[int]:
    found: list[int] = []
    while node >= 0:
        found.append(branching.token_ids[node])
        node = branching.parents[node]
    return found[::-1]


def advance(branchings: Sequence[Branching]) -> torch.Tensor:
    rows = []
    for b in branchings:
        new = range(len(b.token_ids) - b.num_new, len(b.token_ids))
        rows += [MODEL.logits([*b.request.token_ids.tolist(), *path(b, node)]) for node in new]
    return torch.stack(rows)


def grown(growth: Growth, views: Sequence[View], length: int, context: ProposerContext = CONTEXT) -> list[Any]:
    logits = torch.stack([MODEL.logits(view.tokens) for view in views])
    branchings = [Branching(view, length) for view in views]
    return grow(growth, context, branchings, logits, Vocabulary(5), advance=advance)


def test_a_greedy_chain_is_the_models_own_continuation() -> None:
    draft = grown(Growth(), [View([1, 2])], 4)[0]
    tokens = [1, 2]
    for token in draft.token_ids:
        assert token == int(MODEL.logits(tokens).argmax())
        tokens.append(token)
    assert len(draft.token_ids) == 4 and draft.probs is None


def test_a_sampled_chain_carries_the_laws_it_was_drawn_from() -> None:
    view = View([1, 2], SamplingParams(temperature=0.7))
    draft = grown(Growth(), [view, View([3])], 3)[0]
    for depth in range(3):
        wanted = (MODEL.logits([1, 2, *draft.token_ids[:depth]]) / 0.7).softmax(-1)
        torch.testing.assert_close(draft.probs[depth], wanted)
    greedy = grown(Growth(greedy=True), [view], 3)[0]
    assert greedy.probs is None


@pytest.mark.parametrize("num_nodes", [1, 3, 7, 20])
def test_a_tree_holds_the_likeliest_of_all_its_candidates(num_nodes: int) -> None:
    """With a width of the whole vocabulary nothing is lost, so the tree is the best of all prefixes."""
    draft = grown(Growth(tree_width=5, tree_depth=2), [View([1, 2])], num_nodes)[0]
    scores: dict[tuple[int, ...], float] = {}
    for length in (1, 2):
        for tokens in itertools.product(range(5), repeat=length):
            text = [1, 2]
            score = 0.0
            for token in tokens:
                score += float(MODEL.logits(text).log_softmax(-1)[token])
                text.append(token)
            scores[tokens] = score
    wanted = sorted(scores, key=lambda tokens: -scores[tokens])[:num_nodes]
    assert sorted(map(tuple, draft.prefixes()[1:])) == sorted(wanted)


def test_no_draft_grows_where_the_controller_says_no() -> None:
    for growth in (Growth(), Growth(tree_width=2, tree_depth=4)):
        asked: list[int] = []

        def continues(request: Any, depth: int, probs: torch.Tensor, asked: list[int] = asked) -> bool:
            asked.append(depth)
            assert math.isclose(float(probs.sum()), 1.0, rel_tol=1e-9)
            return depth < 2

        draft = grown(growth, [View([1, 2])], 8, replace(CONTEXT, continues=continues))[0]
        assert max(draft.depths()) == 1
        assert asked == [0, 1, 2]


@pytest.mark.parametrize("num_nodes", [1, 4, 9])
def test_medusas_tree_is_the_likeliest_of_all_paths(num_nodes: int) -> None:
    scores = torch.randn(2, 4, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    draft = likeliest_paths(scores, 4, num_nodes)
    every = {(a,): float(scores[0, a]) for a in range(4)}
    every |= {(a, b): float(scores[0, a] + scores[1, b]) for a in range(4) for b in range(4)}
    wanted = sorted(every, key=lambda tokens: -every[tokens])[:num_nodes]
    assert sorted(map(tuple, draft.prefixes()[1:])) == sorted(wanted)


@pytest.mark.parametrize("fields", [{"tree_width": 0}, {"tree_depth": 0}, {"tree_width": True}, {"tree_depth": 1.5}])
def test_a_growth_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        Growth(**fields)
