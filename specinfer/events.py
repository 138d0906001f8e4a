"""What happened at each step, for each request?

The one source of every figure: metrics are functions of these events and of nothing else. Always true: summed over a
request's events, `num_emitted` equals its output tokens; times are those of the whole step, so that a sum over steps
takes each `step` once.
"""

from __future__ import annotations

from dataclasses import dataclass

EVENT_SCHEMA_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One request in one engine step. Times in seconds."""

    step: int
    request_id: str
    context_len: int
    """Committed tokens before the step."""
    batch_size: int
    """Requests in the step."""
    num_scheduled_tokens: int
    """Tokens of this request in the forward: prefill chunk, or pending token and drafts."""
    is_prefill: bool
    """The row held tokens never emitted by the engine (prompt, or recomputed after a preemption)."""
    proposer: str
    provenance: list[str]
    """Who proposed each draft token; empty where the proposer is no combinator."""
    draft_token_ids: list[int]
    draft_parents: list[int]
    """Of each draft token, -1 behind the committed ones; empty for a chain."""
    draft_depth: int
    """Tokens on the draft's longest path: what could be accepted at most."""
    draft_q: list[float]
    """q of each draft token, 1 where deterministic."""
    draft_p: list[float]
    """p of each draft token under the target's law at its row."""
    num_accepted: int
    """Draft tokens that the verifier accepted, before any stop cut."""
    accepted_path: list[int]
    """The accepted nodes of a draft tree, from the root on; empty for a chain, whose first ones they are."""
    distance: float
    """Summed over the emitted tokens, the total variation distance between p and the law that a lossy verifier
    emitted the token by, given the draft; 0 for an exact one."""
    next_token_id: int | None
    """The token after the accepted ones; None for a prefill chunk that is not the last."""
    num_emitted: int
    """Tokens that reached the output, after the stop cut."""
    num_cut: int
    """Verified tokens thrown away behind a stop; the token that never comes behind the end of a form is one."""
    grammar_states: list[str]
    """What the token of each verified row is a part of, the row behind the committed tokens first, then one behind each
    draft token (GRAMMAR_STATES of specinfer.protocols); empty where the output has no form."""
    mask_popcounts: list[int]
    """Tokens that the form allows at each of these rows."""
    legal_mass: list[float]
    """What the target's law, at temperature 1 and without the form, gives to these tokens at each of these rows."""
    draft_legal: list[bool]
    """Whether the form allows each draft token."""
    drafted_states: list[str]
    """As grammar_states, for each token as it was proposed, before the draft was fitted to the form."""
    legal_draft_mass: list[float]
    """How much of the law that each of these was drawn from the form allows; 1 or 0 for a deterministic one."""
    draft_s: float
    """Drafting of the tokens verified in this step (done at the end of the step before)."""
    forward_s: float
    grammar_s: float
    """Filling the masks."""
    verify_s: float
    """Logits processing, sampling and verification."""
    other_s: float
    """Scheduling, batch building, commit, detokenization."""

    @property
    def is_decode(self) -> bool:
        return not self.is_prefill
