"""One factory for every installed proposer, chain and tree, on tiny targets; a proposer without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from proposers.best_of import BestOfProposer
from proposers.cascade import CascadeProposer
from proposers.draft_model import DraftModelProposer
from proposers.eagle import EagleProposer
from proposers.fallback import FallbackProposer
from proposers.filtered import FilteredProposer
from proposers.forced import ForcedProposer
from proposers.growth import Growth
from proposers.lookahead import LookaheadProposer
from proposers.medusa import MedusaProposer
from proposers.ngram import NgramProposer
from proposers.none import NoProposer
from proposers.prompt_ahead import PromptAheadProposer
from proposers.self_draft import SelfDraftProposer
from proposers.suffix import SuffixProposer
from specinfer.models.eagle import EagleKind
from specinfer.models.eagle_export import write_head
from specinfer.models.medusa import MedusaHeads, MedusaShape, write_medusa
from specinfer.protocols import LoadedModel
from specinfer.testing.llama import tiny_eagle_head, tiny_llama

DRAFT_MODEL = "a small llama"
TREE = Growth(tree_width=2, tree_depth=3)


@cache
def target(vocab_size: int) -> LoadedModel:
    return tiny_llama(vocab_size)


def load_draft_model(vocab_size: int) -> LoadedModel:
    """What `context.load_model` gives in these tests: another llama with the same vocabulary."""
    return tiny_llama(vocab_size, num_layers=2, seed=5)


@cache
def eagle_folder(kind: EagleKind, vocab_size: int) -> str:
    folder = mkdtemp(prefix=f"{kind.value}-")
    write_head(tiny_eagle_head(kind, vocab_size), Path(folder), dtype=torch.float64)
    return folder


@cache
def medusa_folder(vocab_size: int) -> str:
    folder = mkdtemp(prefix="medusa-")
    heads = MedusaHeads(MedusaShape(hidden_size=16, vocab_size=vocab_size, num_heads=3)).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    write_medusa(heads, Path(folder), dtype=torch.float64)
    return folder


def _eagle(vocab_size: int, growth: Growth | None = None) -> EagleProposer:
    return EagleProposer(head=eagle_folder(EagleKind.EAGLE3, vocab_size), growth=growth or Growth())


Make = Callable[[int, int], Any]
"""(vocabulary size, draft length) -> a proposer"""

ZOO: dict[str, dict[str, Make]] = {
    "none": {"chain": lambda v, k: NoProposer()},
    "ngram": {"chain": lambda v, k: NgramProposer(num_draft_tokens=k)},
    "self_draft": {
        "chain": lambda v, k: SelfDraftProposer(num_layers=2, num_draft_tokens=k),
        "tree": lambda v, k: SelfDraftProposer(num_layers=2, num_draft_tokens=k, growth=TREE),
        "greedy chain": lambda v, k: SelfDraftProposer(num_layers=3, num_draft_tokens=k, growth=Growth(greedy=True)),
    },
    "draft_model": {
        "chain": lambda v, k: DraftModelProposer(model=DRAFT_MODEL, num_draft_tokens=k),
        "tree": lambda v, k: DraftModelProposer(model=DRAFT_MODEL, num_draft_tokens=k, growth=TREE),
        "intersection": lambda v, k: DraftModelProposer(model=DRAFT_MODEL, num_draft_tokens=k, share_vocabulary=False),
    },
    "eagle": {
        "chain": lambda v, k: EagleProposer(head=eagle_folder(EagleKind.EAGLE3, v), num_draft_tokens=k),
        "tree": lambda v, k: EagleProposer(head=eagle_folder(EagleKind.EAGLE3, v), num_draft_tokens=k, growth=TREE),
        "first chain": lambda v, k: EagleProposer(head=eagle_folder(EagleKind.EAGLE1, v), num_draft_tokens=k),
        "first tree": lambda v, k: EagleProposer(
            head=eagle_folder(EagleKind.EAGLE1, v), num_draft_tokens=k, growth=TREE
        ),
    },
    "suffix": {
        "chain": lambda v, k: SuffixProposer(num_draft_tokens=k),
        "tree": lambda v, k: SuffixProposer(num_draft_tokens=k, is_tree=True),
    },
    "lookahead": {
        "tree": lambda v, k: LookaheadProposer(num_draft_tokens=k + 4, window=2, ngram_size=3),
    },
    "prompt_ahead": {
        "chain": lambda v, k: PromptAheadProposer(num_draft_tokens=k),
    },
    "fallback": {
        "ngram, eagle": lambda v, k: FallbackProposer(NgramProposer(min_lookup=2), _eagle(v), num_draft_tokens=k),
    },
    "best_of": {
        "ngram, eagle tree, self draft": lambda v, k: BestOfProposer(
            [NgramProposer(), _eagle(v, TREE), SelfDraftProposer(num_layers=2)], num_draft_tokens=k
        ),
    },
    "cascade": {
        "eagle, ngram": lambda v, k: CascadeProposer(
            _eagle(v), NgramProposer(), max_first_tokens=2, num_draft_tokens=k
        ),
    },
    "forced": {
        "ngram": lambda v, k: ForcedProposer(inner=NgramProposer(), num_draft_tokens=k),
        "eagle": lambda v, k: ForcedProposer(inner=_eagle(v), num_draft_tokens=k),
        "filtered tree": lambda v, k: ForcedProposer(inner=FilteredProposer(inner=_eagle(v, TREE)), num_draft_tokens=k),
    },
    "filtered": {
        "eagle": lambda v, k: FilteredProposer(inner=_eagle(v), num_draft_tokens=k),
        "eagle tree": lambda v, k: FilteredProposer(inner=_eagle(v, TREE), num_draft_tokens=k),
        "self draft": lambda v, k: FilteredProposer(inner=SelfDraftProposer(num_layers=2), num_draft_tokens=k),
        "medusa": lambda v, k: FilteredProposer(inner=MedusaProposer(heads=medusa_folder(v)), num_draft_tokens=k),
        "fallback": lambda v, k: FilteredProposer(
            inner=FallbackProposer(NgramProposer(min_lookup=2), _eagle(v)), num_draft_tokens=k
        ),
    },
    "medusa": {
        "chain": lambda v, k: MedusaProposer(heads=medusa_folder(v), num_draft_tokens=k),
        "tree": lambda v, k: MedusaProposer(heads=medusa_folder(v), num_draft_tokens=k, tree_width=2),
    },
}

VARIANTS = [(name, kind) for name, kinds in ZOO.items() for kind in kinds]
"""Every (proposer, kind of draft)"""


def make(name: str, kind: str, *, vocab_size: int, num_draft_tokens: int) -> Any:
    return ZOO[name][kind](vocab_size, num_draft_tokens)
