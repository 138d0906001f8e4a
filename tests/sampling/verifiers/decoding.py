"""Draft, verify, commit over random tables, every draft token drawn inside the run that an enumerator replays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specinfer.protocols import DrawKey, Purpose, Randomness, Verdict, VerifyItem
from specinfer.sampling.target import GreedyRows, SampledRows
from specinfer.types import Draft

SEED = 0


@lru_cache(maxsize=65536)
def table(seed: int, kind: str, prefix: tuple[int, ...], vocab_size: int) -> Tensor:
    """A law fixed by its name and the prefix; those of `p` and `q` now and then lack a token, `full_q` never does."""
    rng = np.random.default_rng([seed, *kind.encode(), *prefix])
    weights = rng.dirichlet(np.ones(vocab_size))
    if rng.random() < 0.25 and kind != "full_q":
        weights[rng.integers(vocab_size)] = 0.0
    return torch.from_numpy(weights / weights.sum())


def point(token_id: int, vocab_size: int) -> Tensor:
    return torch.eye(vocab_size, dtype=torch.float64)[token_id]


@dataclass
class Sibling:
    """What a drafter may know when it proposes a node: the table, the tokens before it and its elder siblings."""

    seed: int
    vocab_size: int
    prefix: tuple[int, ...]
    elders: Sequence[int]
    node: int


def one_hot(sibling: Sibling) -> Tensor:
    last = sibling.prefix[-1] if sibling.prefix else 1
    return point((last + 1 + len(sibling.elders)) % sibling.vocab_size, sibling.vocab_size)


def with_replacement(sibling: Sibling) -> Tensor:
    return table(sibling.seed, "q", sibling.prefix, sibling.vocab_size)


def without_replacement(sibling: Sibling) -> Tensor:
    q = table(sibling.seed, "full_q", sibling.prefix, sibling.vocab_size).clone()
    q[list(sibling.elders)] = 0.0
    return q / q.sum()


def mixed(sibling: Sibling) -> Tensor:
    return one_hot(sibling) if sibling.node % 2 == 0 else with_replacement(sibling)


def mixed_late(sibling: Sibling) -> Tensor:
    return with_replacement(sibling) if sibling.node % 2 == 0 else one_hot(sibling)


DRAFTERS: dict[str, Callable[[Sibling], Tensor]] = {
    "one_hot": one_hot,
    "with_replacement": with_replacement,
    "without_replacement": without_replacement,
    "one_hot_first": mixed,
    "one_hot_second": mixed_late,
}


@dataclass(frozen=True)
class Shape:
    """Breadth first, so that the first nodes are the shallow ones; plain tokens follow after `num_steps` drafts."""

    parents: tuple[int, ...]
    num_tokens: int
    num_steps: int = 1
    vocab_size: int = 3

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.parents) - 1))


SHAPES = {
    "chain": Shape((-1, 0), num_tokens=3, num_steps=3),
    "pair": Shape((-1, -1), num_tokens=3, num_steps=2),
    "fan": Shape((-1, -1, -1), num_tokens=2, vocab_size=4),
    "tree": Shape((-1, -1, 0, 1), num_tokens=3),
    "lopsided": Shape((-1, -1, 1, 1), num_tokens=3),
}


class Decoding:
    """One request's tokens, `shape.num_tokens` of them; `seed` names the tables."""

    def __init__(self, verifier: Any, drafter: str, shape: Shape, seed: int, *, greedy: bool = False) -> None:
        self.verifier, self.drafter, self.shape, self.seed, self.greedy = verifier, drafter, shape, seed, greedy
        self.num_accepted = self.num_rejections = 0

    def p(self, prefix: tuple[int, ...]) -> Tensor:
        p = table(self.seed, "p", prefix, self.shape.vocab_size)
        return point(int(p.argmax()), len(p)) if self.greedy else p

    def __call__(self, randomness: Randomness) -> list[int]:
        outputs: tuple[int, ...] = ()
        for _ in range(self.shape.num_steps):
            outputs += self.step(outputs, randomness)
        while len(outputs) < self.shape.num_tokens:
            key = DrawKey(SEED, len(outputs), Purpose.SAMPLE)
            outputs += (randomness.categorical(self.p(outputs), key),)
        return list(outputs)

    def step(self, outputs: tuple[int, ...], randomness: Randomness) -> tuple[int, ...]:
        draft = self.draft(outputs, randomness)
        if not draft.token_ids:
            return ()
        verdict = self.verdict(draft, outputs, randomness)
        self.num_accepted += verdict.num_accepted
        self.num_rejections += bool(draft.children()[verdict.path[-1] + 1 if verdict.path else 0])
        return (*(draft.token_ids[node] for node in verdict.path), verdict.token_id)

    def verdict(self, draft: Draft, outputs: tuple[int, ...], randomness: Randomness) -> Verdict:
        laws = torch.stack([self.p((*outputs, *prefix)) for prefix in draft.prefixes()])
        target = (
            GreedyRows(laws.argmax(dim=-1).tolist(), laws[0], frozenset())
            if self.greedy
            else SampledRows(laws.clone(), randomness, frozenset())
        )
        verdict = self.verifier.verify([VerifyItem(target, draft, SEED, len(outputs))], randomness)[0]
        assert self.greedy or torch.equal(target.laws, laws), "p was modified"
        return verdict

    def draft(self, outputs: tuple[int, ...], randomness: Randomness) -> Draft:
        """No more than can be emitted before the last token; a chain comes without parents."""
        token_ids: list[int] = []
        laws: list[Tensor] = []
        parents = [] if self.shape.is_chain else list(self.shape.parents)
        shape = Draft(self.shape.parents, parents=self.shape.parents)
        for node, depth in enumerate(shape.depths()):
            if len(outputs) + depth + 1 >= self.shape.num_tokens:
                break
            known = Draft(token_ids, parents=self.shape.parents[:node])
            elders = [token_ids[elder] for elder in known.children()[shape.parent(node) + 1]]
            prefix = (*outputs, *known.prefixes()[shape.parent(node) + 1])
            laws.append(DRAFTERS[self.drafter](Sibling(self.seed, self.shape.vocab_size, prefix, elders, node)))
            key = DrawKey(SEED, len(outputs) + depth, Purpose.DRAFT, index=16 * len(outputs) + node)
            token_ids.append(randomness.categorical(laws[-1], key))
        probs = torch.stack(laws) if laws and self.drafter != "one_hot" else None
        return Draft(token_ids, probs, parents=parents[: len(token_ids)] or None)

    def expected_law(self) -> dict[tuple[int, ...], float]:
        """The product of the target's laws."""
        law: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(self.shape.num_tokens):
            law = {
                (*prefix, token): weight * prob
                for prefix, weight in law.items()
                for token, prob in enumerate(self.p(prefix).tolist())
                if prob > 0
            }
        return law
