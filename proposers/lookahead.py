"""What does the target itself guess for the tokens after the next one, if asked in parallel?

Lookahead decoding (Fu et al. 2024): Jacobi iterations over a window of future positions leave n-grams behind, and
those that begin with the last token are verified. Both go into one draft tree: the n-grams first, then the window, so
that the target's choices at the window's rows are the next iteration. Always true: a draft is a function of the
request's own tokens and of the target's choices for it, with a one-hot q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specinfer.errors import check_count
from specinfer.protocols import Observation, ProposerContext, RequestView
from specinfer.types import Draft


class TokenTree:
    """Draft nodes by path: a path that is asked for twice has one node, since its row is the same."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.parents: list[int] = []
        self._nodes: dict[tuple[int, int], int] = {}

    def child(self, parent: int, token_id: int) -> int:
        node = self._nodes.setdefault((parent, token_id), len(self.token_ids))
        if node == len(self.token_ids):
            self.token_ids.append(token_id)
            self.parents.append(parent)
        return node

    def draft(self) -> Draft:
        return Draft(list(self.token_ids), parents=list(self.parents))


@dataclass(slots=True)
class Lookahead:
    """One request's window and pool."""

    levels: list[list[int]]
    """[ngram_size - 1][window] once full; levels[i + 1][j] is what the target chose behind column j's levels 0..i"""
    pool: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    """By first token, the rest of the n-grams seen, latest last"""
    drafted: Draft | None = None
    last_nodes: list[int] = field(default_factory=list)
    """Of the drafted columns, the node of the highest level"""
    num_tokens: int = 0
    """Tokens that the draft continues"""

    def remember(self, ngram: Sequence[int], max_candidates: int) -> None:
        """Put an n-gram into the pool; the one that was seen least recently makes room."""
        first, *rest = ngram
        kept = self.pool.setdefault(first, [])
        if tuple(rest) in kept:
            kept.remove(tuple(rest))
        kept.append(tuple(rest))
        del kept[:-max_candidates]

    def plan(self, last_token_id: int, length: int) -> Draft:
        """N-grams of the pool, then as many whole columns of the window as fit."""
        tree = TokenTree()
        for rest in reversed(self.pool.get(last_token_id, [])):
            parent = -1
            for token_id in rest[: length - len(tree.token_ids)]:
                parent = tree.child(parent, token_id)
        num_columns = min(len(self.levels[0]), (length - len(tree.token_ids)) // len(self.levels))
        self.last_nodes, parent = [], -1
        chain: list[int] = []
        for token_id in self.levels[0][:num_columns]:
            parent = tree.child(parent, token_id)
            chain.append(parent)
        for column, parent in enumerate(chain):
            node = parent
            for level in self.levels[1:]:
                node = tree.child(node, level[column])
            self.last_nodes.append(node)
        self.drafted = tree.draft()
        return self.drafted

    def learn(self, choices: Sequence[int], num_emitted: int, ngram_size: int, max_candidates: int) -> None:
        """Take in the target's choices, row 0 behind the last token and row i + 1 behind node i."""
        new = [self.levels[-1][column] for column in range(len(self.levels[0]))]  # where the draft was cut
        for column, node in enumerate(self.last_nodes):
            if node + 1 < len(choices):
                new[column] = choices[node + 1]
                if len(self.levels) + 1 == ngram_size:
                    self.remember([*(level[column] for level in self.levels), new[column]], max_candidates)
        self.levels.append(new)
        if len(self.levels) == ngram_size:
            del self.levels[0]
            num_emitted -= 1  # a level lower is a position further
        move = num_emitted % len(new)
        self.levels = [level[move:] + level[:move] for level in self.levels]


@dataclass
class LookaheadProposer:
    """Drafts from the n-grams that the target wrote in earlier steps, and has it write new ones.

    window: positions that are guessed in parallel (W in the paper). ngram_size: N; the window has N - 1 levels.
    max_candidates: n-grams that are kept and verified for a first token (G). A full draft has at most
    (window + max_candidates) * (ngram_size - 1) nodes, and the n-grams come first where it may not.
    """

    num_draft_tokens: int = 24
    window: int = 5
    ngram_size: int = 4
    max_candidates: int = 3

    _states: dict[str, Lookahead] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes that cannot work."""
        for name, low in (("num_draft_tokens", 0), ("window", 1), ("ngram_size", 2), ("max_candidates", 1)):
            check_count(f"lookahead.{name}", getattr(self, name), low)

    def bind(self, context: ProposerContext) -> None:
        """Begin without windows; the target's choices come through `observe`."""
        self._states = {}

    def start(self, request: RequestView) -> None:
        """Fill the first level with the prompt's last tokens: any guess will do."""
        token_ids = request.token_ids[-self.window :].tolist()
        first = [token_ids[column % len(token_ids)] for column in range(self.window)]
        self._states[request.request_id] = Lookahead([first])

    def observe(self, observation: Observation) -> None:
        """Move the windows whose draft was verified, or its beginning."""
        for request, draft, choices in zip(observation.requests, observation.drafts, observation.choices, strict=True):
            state = self._states.get(request.request_id)
            if state is None or draft is None or state.drafted is None:
                continue
            if _begins(state.drafted, draft):
                num_emitted = len(request.token_ids) - state.num_tokens
                state.learn(choices, num_emitted, self.ngram_size, self.max_candidates)
            state.drafted = None

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        drafts: list[Draft | None] = []
        for request, length in zip(requests, num_draft_tokens, strict=True):
            state = self._states[request.request_id]
            state.num_tokens = len(request.token_ids)
            drafts.append(state.plan(int(request.token_ids[-1]), length))
        return drafts

    def stop(self, request_id: str) -> None:
        self._states.pop(request_id, None)


def _begins(drafted: Draft, verified: Draft) -> bool:
    """Whether the verified draft is the beginning of the one drafted: a combinator may have sent another's."""
    num = len(verified.token_ids)
    return num <= len(drafted.token_ids) and all(
        verified.token_ids[node] == drafted.token_ids[node] and verified.parent(node) == drafted.parent(node)
        for node in range(num)
    )
