"""What is an EAGLE head taught, and how good is it?

Training-time test (Li et al. 2025, section 3): the head is unrolled over several steps, each fed with its own previous
output in place of the target's state, the tokens those of the text. Step i of the slot t has position t + i; it sees
the slots up to t as the target left them, and of the later steps only its own line. Always true: what a step computes
here is what the engine's i-th draft token is computed from, so that accepted lengths counted here are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from experiments.training.features import Features
from experiments.training.losses import soft_cross_entropy
from specinfer.models.eagle import EagleHead, rotation


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some conversations side by side, padded.

    A base is a slot that the engine drafts from: the first has read the response's first token and predicts the second.
    """

    token_ids: Tensor
    """int64 [num_texts, max_len]"""
    states: Tensor
    """[num_texts, max_len, state_size]"""
    labels: Tensor
    """[num_texts, num_bases + num_steps, hidden_size]: what the target's head read, from the first base's label on"""
    bases: Tensor
    """int64 [num_texts, num_bases]: slots, the last one repeated where there are fewer"""
    num_left: Tensor
    """int64 [num_texts, num_bases]: how many steps have a label from this base on; 0 for padding"""
    covered: Tensor
    """bool [num_texts, num_bases + num_steps]: the target's choice is in the draft vocabulary"""


def text_batch(
    features: Features,
    numbers: Sequence[int],
    num_steps: int,
    device: torch.device,
    *,
    is_covered: NDArray[np.bool_] | None = None,
    reads_final: bool = False,
    on_prompts: bool = False,
) -> TextBatch:
    """Gather conversations.

    is_covered: [num_tokens], where the target's choice is a draft token; None for everywhere. reads_final: the
    states are those behind the final norm (EAGLE-1). on_prompts: the slots of the prompts are bases too.
    """
    starts, ends = features.starts[list(numbers)], features.starts[[n + 1 for n in numbers]]
    lengths = ends - starts
    first_bases = np.zeros_like(starts) if on_prompts else features.response_starts[list(numbers)] - starts - 1
    first_bases = np.maximum(first_bases, 0)
    counts = np.maximum(lengths - 2 - first_bases, 0)
    num_bases, max_len = int(counts.max()), int(lengths.max())
    steps = np.arange(num_bases)
    bases = first_bases[:, None] + np.minimum(steps, np.maximum(counts - 1, 0)[:, None])
    num_left = np.where(steps < counts[:, None], np.minimum(lengths[:, None] - 2 - bases, num_steps), 0)
    within = starts[:, None] + np.minimum(np.arange(max_len), lengths[:, None] - 1)
    label_places = starts[:, None] + np.minimum(
        first_bases[:, None] + 1 + np.arange(num_bases + num_steps), lengths[:, None] - 1
    )

    def tensor(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return TextBatch(
        token_ids=tensor(features.token_ids[within]),
        states=tensor((features.final if reads_final else features.states)[within].astype(np.float32)),
        labels=tensor(features.final[label_places].astype(np.float32)),
        bases=tensor(bases),
        num_left=tensor(num_left),
        covered=tensor(np.ones_like(label_places, dtype=bool) if is_covered is None else is_covered[label_places]),
    )


def unroll(head: EagleHead, embedding: Tensor, batch: TextBatch, num_steps: int) -> list[Tensor]:
    """The head's output of each step at each base, [num_texts, num_bases, hidden_size] a step.

    embedding: the target's input embeddings [vocab_size, hidden_size].
    """
    layer, shape = head.midlayer, head.shape
    rows = torch.arange(len(batch.bases), device=batch.bases.device)[:, None]
    slots = torch.arange(batch.token_ids.shape[1] - 1, device=batch.bases.device)
    states = head.project(batch.states[:, :-1])
    joined, residual = head.slot_input(functional.embedding(batch.token_ids[:, 1:], embedding), states)
    cos, sin = rotation(slots, shape.head_dim, shape.rope_theta, states.dtype)
    key, value = layer.keys_values(joined, cos, sin)
    visible = slots <= batch.bases[:, :, None]
    joined, residual = joined[rows, batch.bases], residual[rows, batch.bases]
    own: list[tuple[Tensor, Tensor]] = []
    outputs: list[Tensor] = []
    for step in range(num_steps):
        cos, sin = rotation(batch.bases + step, shape.head_dim, shape.rope_theta, states.dtype)
        if step:
            tokens = batch.token_ids[rows, (batch.bases + 1 + step).clamp(max=batch.token_ids.shape[1] - 1)]
            joined, residual = head.slot_input(functional.embedding(tokens, embedding), head.fed_back(outputs[-1]))
            own.append(layer.keys_values(joined, cos, sin))
        query = layer.queries(joined, cos, sin)
        outputs.append(layer.finish(residual, _attend(query, key, value, visible, own)))
    return outputs


def _attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, own: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention of the bases over the visible slots and over each one's own later steps.

    query: [num_texts, num_bases, num_heads, dim]; key, value: [num_texts, num_slots, num_kv_heads, dim]; own: keys and
    values [num_texts, num_bases, num_kv_heads, dim] of the steps so far.
    """
    num_texts, num_bases, _, dim = query.shape
    num_kv_heads = key.shape[2]
    grouped = query.view(num_texts, num_bases, num_kv_heads, -1, dim) * dim**-0.5  # [texts, bases, kv, group, dim]
    folded = grouped.permute(0, 2, 1, 3, 4).flatten(2, 3)  # [texts, kv, bases * group, dim]
    scores = (folded @ key.permute(0, 2, 3, 1)).view(num_texts, num_kv_heads, num_bases, -1, key.shape[1])
    scores = scores.float().masked_fill(~visible[:, None, :, None, :], -torch.inf)
    later = [(grouped * k[:, :, :, None]).sum(-1).permute(0, 2, 1, 3)[..., None].float() for k, _ in own]
    weights = torch.cat([scores, *later], dim=-1).softmax(dim=-1).to(query.dtype)
    num_slots = key.shape[1]
    attended = weights[..., :num_slots].flatten(2, 3) @ value.permute(0, 2, 1, 3)  # [texts, kv, bases * group, dim]
    attended = attended.view(num_texts, num_kv_heads, num_bases, -1, dim).permute(0, 2, 1, 3, 4)
    for step, (_, v) in enumerate(own):
        attended = attended + weights[..., num_slots + step].permute(0, 2, 1, 3)[..., None] * v[:, :, :, None]
    flat: Tensor = attended.flatten(2, 3)
    return flat


def soft_loss(
    outputs: Sequence[Tensor],
    logits_of: Callable[[Tensor], Tensor],
    target_head: Tensor,
    batch: TextBatch,
    decay: float,
) -> tuple[Tensor, list[float]]:
    """Mean cross-entropy to the target's law over the draft vocabulary, step i weighted decay**i; top-1 hits a step.

    outputs: of `unroll`. target_head: the target's head at the draft tokens, [draft_vocab_size, hidden_size].
    """
    with torch.no_grad():
        label_logits = batch.labels @ target_head.T
    num_labels = batch.labels.shape[1]
    first_labels = torch.arange(len(batch.bases), device=batch.bases.device)[:, None] * num_labels
    columns = torch.arange(batch.bases.shape[1], device=batch.bases.device)
    total = outputs[0].new_zeros(())
    hits: list[float] = []
    for step, output in enumerate(outputs):
        places = first_labels + columns + step
        counts = (batch.num_left > step) & batch.covered.flatten()[places]
        logits = logits_of(output[counts])
        mean, num_hits = soft_cross_entropy(logits, label_logits.flatten(0, 1), places[counts])
        total = total + decay**step * mean
        hits.append(float(num_hits) / max(len(logits), 1))
    return total, hits


def feature_loss(output: Tensor, batch: TextBatch) -> Tensor:
    """EAGLE-1's regression: SmoothL1 between the head's output and the state that the target's head will read."""
    counts = batch.num_left > 0
    return functional.smooth_l1_loss(output[counts], batch.labels[:, : output.shape[1]][counts].to(output.dtype))


@torch.inference_mode()
def accepted_lengths(
    outputs: Sequence[Tensor], draft_ids: Callable[[Tensor], Tensor], batch: TextBatch
) -> list[list[int]]:
    """How many greedy draft tokens the text confirms from each base on, a list a conversation.

    outputs: of `unroll`. draft_ids: the target ids that a head drafts from an output. For a greedy response these are
    the lengths that the engine accepts from there.
    """
    rows = torch.arange(len(batch.bases), device=batch.bases.device)[:, None]
    stands = batch.num_left > 0
    lengths = torch.zeros_like(batch.bases)
    for step, output in enumerate(outputs):
        drafted = draft_ids(output)
        follows = batch.token_ids[rows, (batch.bases + 2 + step).clamp(max=batch.token_ids.shape[1] - 1)]
        stands = stands & (drafted == follows) & (batch.num_left > step)
        lengths += stands
    counts = (batch.num_left > 0).sum(dim=1).tolist()
    return [row[:count] for row, count in zip(lengths.tolist(), counts, strict=True)]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the engine would accept on some greedy responses with a chain of `num_steps` tokens."""

    conditional: list[float]
    """C_i by position"""
    length: float
    """1 + accepted tokens a decode step"""


def walk_acceptance(lengths: Sequence[Sequence[int]], num_steps: int) -> Acceptance:
    """Step through each response as the engine does: behind the accepted tokens and one more.

    A draft leaves room for the token after it, so the last token of a response is never drafted.
    """
    accepted: list[int] = []
    num_plain = 0
    for own in lengths:
        place = 0
        while place < len(own):
            room = len(own) - place - 1
            if room:
                accepted.append(min(own[place], room))
            num_plain += not room
            place += 1 + (accepted[-1] if room else 0)
    counts = np.array(accepted, dtype=np.int64)
    reached = [np.count_nonzero(counts >= i) for i in range(num_steps + 1)]
    conditional = [float(b / a) if a else 0.0 for a, b in pairwise(reached)]
    num_decode_steps = len(counts) + num_plain
    return Acceptance(conditional, 1.0 + float(counts.sum()) / num_decode_steps if num_decode_steps else 1.0)
