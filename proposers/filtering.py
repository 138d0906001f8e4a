"""Which tokens may a drafter draw, where its drafts are to fit the form of the output?

Always true: a law is restricted before a token is drawn from it, so the restricted law is the q that the token comes
with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specinfer.protocols import ProposerContext, RequestView
from specinfer.structured.bitmask import members


def legal_logits(
    context: ProposerContext,
    request: RequestView,
    path: Sequence[int],
    logits: Tensor,
    to_target: Tensor | None = None,
) -> Tensor | None:
    """`logits` [draft_vocab_size] behind a path of draft tokens, -inf where the form forbids a token.

    As they are where the context asks for no filter or the output is free; None where nothing legal is left.
    to_target: the target ids of the draft vocabulary, None where they are the same.
    """
    if not context.is_filtered or request.constraint is None:
        return logits
    row = request.constraint.row_behind(path)
    if row is None:
        return None
    legal = torch.from_numpy(members(row)).to(logits.device)
    legal = legal[: len(logits)] if to_target is None else legal[to_target]
    if len(legal) < len(logits):  # padding of the logits
        legal = torch.nn.functional.pad(legal, (0, len(logits) - len(legal)))
    return logits.masked_fill(~legal, -torch.inf) if bool(legal.any()) else None
