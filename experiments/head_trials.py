"""How well does each reading of a head draft?

The target answers the same prompts greedily, once a reading, with the reading drafting; acceptance is counted from the
engine's events. Always true: every reading drafts through the engine that will run it, its own tokens fed back; one
reading beats another where the difference is more than twice its standard error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
import polars as pl

from proposers.eagle import EagleProposer
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError
from specinfer.llm import LLM
from specinfer.metrics import table
from specinfer.metrics.figures import PositionRates, by_position
from specinfer.metrics.totals import with_counts
from specinfer.models.eagle_checkpoint import EagleReading
from specinfer.protocols import LoadedModel
from specinfer.types import SamplingParams

LEAST_SEEN = 6
"""How often a token must have been drafted before its entry in the vocabulary map is suspected"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One reading's drafts."""

    reading: EagleReading
    rates: PositionRates
    length: float
    """1 + accepted tokens a drafted step"""
    error: float
    """Standard error of `length`"""
    firsts: list[tuple[int, int]]
    """(first draft token, the target's choice at its place), one a drafted step"""

    def beats(self, other: Trial) -> bool:
        return self.length - other.length > 2 * hypot(self.error, other.error)

    @property
    def first_rate(self) -> float:
        return sum(drafted == said for drafted, said in self.firsts) / max(len(self.firsts), 1)

    @property
    def chance(self) -> float:
        """What always guessing the text's most frequent token would accept at the first position."""
        counts = Counter(said for _, said in self.firsts)
        return max(counts.values(), default=0) / max(len(self.firsts), 1)

    @property
    def works(self) -> bool:
        """It foresees more than a constant guess."""
        rate = self.first_rate
        return rate - 2 * sqrt(rate * (1 - rate) / max(len(self.firsts), 1)) > self.chance

    def mismapped(self) -> dict[int, int]:
        """Draft tokens that are refused where the target mostly says one and the same other token.

        A head that has learnt anything does so where its vocabulary map is wrong: one entry names another token.
        What the target says there must be more than the text's usual token.
        """
        usual = Counter(said for _, said in self.firsts)
        there: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for drafted, said in self.firsts:
            there[drafted][said] += 1
        found = {}
        for drafted, counts in there.items():
            said, times = counts.most_common(1)[0]
            share, total = times / counts.total(), counts.total()
            is_refused = total >= LEAST_SEEN and counts[drafted] < 0.1 * total
            if is_refused and share > max(0.5, 2 * usual[said] / len(self.firsts)):
                found[drafted] = said
        return found if len(found) > 1 else {}


def run_trial(
    head: str,
    reading: EagleReading,
    config: EngineConfig,
    loaded: LoadedModel,
    *,
    prompts: Sequence[Sequence[int]],
    num_tokens: int,
    depth: int,
) -> Trial:
    """Answer the prompts with one reading; ConfigError where the reading cannot be or the text gives no draft."""
    proposer = EagleProposer(head=head, num_draft_tokens=depth, reading=reading)
    llm = LLM(config, proposer, loaded_model=loaded)
    outputs = llm.generate(list(prompts), SamplingParams(temperature=0, max_tokens=num_tokens))
    texts = {output.request_id: output.outputs[0].token_ids for output in outputs}
    lengths = {output.request_id: len(output.prompt_token_ids) for output in outputs}
    events = llm.take_events()
    firsts = []
    for event in events:
        place = event.context_len - lengths[event.request_id]
        if event.draft_token_ids and not event.is_prefill and place < len(texts[event.request_id]):
            firsts.append((event.draft_token_ids[0], texts[event.request_id][place]))
    rows = table.from_events(events)
    accepted = with_counts(rows).filter(pl.col("drafted_steps") > 0)["accepted"].to_numpy()
    if len(accepted) < 2:
        raise ConfigError("the target says too little to tell readings apart: give more num_tokens, or another text")
    error = float(np.std(accepted, ddof=1)) / sqrt(len(accepted))
    return Trial(reading, by_position(rows), 1.0 + float(accepted.mean()), error, firsts)
